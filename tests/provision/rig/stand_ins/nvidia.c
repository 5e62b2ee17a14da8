/* A stand-in for NVIDIA's kernel module: loads, says its version where the real one does, drives nothing. */
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#define VERSION "VERSION@@@"
#ifdef PROPRIETARY
#define FLAVOUR ""
#else
#define FLAVOUR "Open "
#endif

static int version_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "NVRM version: NVIDIA UNIX %sKernel Module for x86_64  %s  Release Build  (outrider-tests)\n",
		   FLAVOUR, VERSION);
	return 0;
}

static struct proc_dir_entry *directory;

static int __init stand_in_init(void)
{
	directory = proc_mkdir("driver/nvidia", NULL);
	if (directory)
		proc_create_single("version", 0444, directory, version_show);
	return 0;
}

static void __exit stand_in_exit(void)
{
	if (directory)
		proc_remove(directory);
}

module_init(stand_in_init);
module_exit(stand_in_exit);
MODULE_DESCRIPTION("stand-in for tests, drives no GPU");
#ifdef PROPRIETARY
/* Real ones say "NVIDIA"; such a module could not use the kernel's GPL-only symbols that this one needs not. */
MODULE_LICENSE("NVIDIA");
#else
MODULE_LICENSE("Dual MIT/GPL");
#endif
MODULE_VERSION(VERSION);
