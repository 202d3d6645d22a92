# SPDX-License-Identifier: BSD-3-Clause
#
# make -f user.mk test   runs a flow's logic in user space

BUILD ?= $(or $(CCC_CACHE),$(HOME)/.cache/ccc)/guest-freebsd
CFLAGS ?= -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined
WARNINGS := -std=gnu17 -Wall -Wextra -Wno-sign-compare -Wno-unused-parameter \
	-Wno-missing-field-initializers -Werror
SOURCES := $(addprefix ../,ccc_flow.c ccc_grant.c ccc_recovery.c ccc_report.c \
	ccc_rtt.c ccc_shadow.c)

test: $(BUILD)/flow
	$<

$(BUILD)/flow: flow.c $(SOURCES) $(wildcard ../*.h shim/*.h ../../common/*.h) ../../include/virtio_ccc.h
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(WARNINGS) -Ishim -I../.. -I../../include -I../../common/tests \
		-o $@ flow.c $(SOURCES)

.PHONY: test
