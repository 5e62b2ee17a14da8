/* A stand-in for nvidia-uvm: takes the option that host_tuning sets, does nothing. */
#include <linux/module.h>

#define VERSION "VERSION@@@"

static int uvm_disable_hmm;
module_param(uvm_disable_hmm, int, 0444);

static int __init stand_in_init(void)
{
	return 0;
}

static void __exit stand_in_exit(void)
{
}

module_init(stand_in_init);
module_exit(stand_in_exit);
MODULE_DESCRIPTION("stand-in for tests, drives no GPU");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(VERSION);
