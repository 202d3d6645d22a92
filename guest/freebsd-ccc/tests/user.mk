# SPDX-License-Identifier: BSD-3-Clause
#
# make -f user.mk test     runs a flow's logic in user space
# make -f user.mk replay   the same as a library, on which test_freebsd_flows.py replays traces

BUILD ?= $(or $(CCC_CACHE),$(HOME)/.cache/ccc)/guest-freebsd
CFLAGS ?= -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined
WARNINGS := -std=gnu17 -Wall -Wextra -Wno-sign-compare -Wno-unused-parameter \
	-Wno-missing-field-initializers -Werror
SOURCES := shim/tcp.c $(addprefix ../,ccc_flow.c ccc_grant.c ccc_recovery.c ccc_report.c \
	ccc_rtt.c ccc_shadow.c)
HEADERS := $(wildcard ../*.h shim/*.h ../../common/*.h) ../../include/virtio_ccc.h
INCLUDES := -Ishim -I../.. -I../../include -I../../common/tests

test: $(BUILD)/flow $(BUILD)/recovery
	$(BUILD)/flow
	$(BUILD)/recovery

$(BUILD)/%: %.c $(SOURCES) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(WARNINGS) $(INCLUDES) -o $@ $< $(SOURCES)

# Without the address sanitizer, which only a whole program can have.
replay: $(BUILD)/replay.so
	@echo $<

$(BUILD)/replay.so: replay.c $(SOURCES) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) -O1 -g -fPIC -shared -fsanitize=undefined -fsanitize-undefined-trap-on-error \
		$(WARNINGS) $(INCLUDES) -o $@ replay.c $(SOURCES) >&2

.PHONY: test replay
