/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a multiboot loader (QEMU's -kernel) to a 64-bit kernel of FreeBSD, which
 * is in memory already with all that its own loader would have put there.
 * image.py fills in the page tables and the parameters.
 */
#define BASE		0x100000
#define PAGE_TABLES	0x101000	/* PML4, PDPT, PD: a page each */

	.code32
	.globl	start
start:
	jmp	enter

	.balign	4
multiboot:
	.long	0x1badb002		/* magic */
	.long	0x00010000		/* the addresses below are valid */
	.long	-(0x1badb002 + 0x00010000)
	.long	BASE + (multiboot - start)
	.long	BASE			/* load_addr */
	.long	0			/* load_end_addr: all of the file */
	.long	0			/* bss_end_addr: none */
	.long	BASE + (enter - start)

	.org	0x40
/* Filled in: as the kernel expects them on its stack. */
parameters:
	.long	0			/* where its loader would return to */
	.long	0			/* modulep */
	.long	0			/* kernend */
	.long	0
entry:
	.quad	0

	.balign	8
gdt:
	.quad	0
	.quad	0x0020980000000000	/* 64-bit code */
	.quad	0x0000800000000000	/* data */
gdt_pointer:
	.word	gdt_pointer - gdt - 1
	.long	BASE + (gdt - start)

enter:
	cli
	lgdt	BASE + (gdt_pointer - start)
	movl	%cr4, %eax
	orl	$0x20, %eax		/* PAE */
	movl	%eax, %cr4
	movl	$PAGE_TABLES, %eax
	movl	%eax, %cr3
	movl	$0xc0000080, %ecx	/* EFER */
	rdmsr
	orl	$0x100, %eax		/* LME */
	wrmsr
	movl	%cr0, %eax
	orl	$0x80000000, %eax	/* PG */
	movl	%eax, %cr0
	ljmp	$8, $BASE + (long_mode - start)

	.code64
long_mode:
	movl	$BASE + (parameters - start), %esp
	movq	BASE + (entry - start), %rax
	jmp	*%rax
