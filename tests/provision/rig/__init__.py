"""What the provisioning tests stand on: a virtual machine, a vendor's repository of stubs, stub GPUs."""
