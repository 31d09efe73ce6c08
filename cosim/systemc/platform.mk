# Builds a SystemC platform around the accelerator: ./platform
#
#   make            Verilates the RTL and compiles everything
#   make run        the example's programs on the RTL, memory compared with what the model left behind
#   make run-view   the same on the timed view, for which PYTHON has the package dovetail
#   make clean      removes everything that can be made again
#
# SYSTEMC is the folder that SystemC is installed in (with include/ and lib*/), empty if the compiler finds it.

VERILATOR ?= verilator
VERILATOR_ROOT ?= $(shell $(VERILATOR) --getenv VERILATOR_ROOT)
SYSTEMC ?=
PYTHON ?= python3
FAST ?= -O3
SLOW ?= -O0

VERILOG := $(sort $(wildcard *.v))
HEADERS := $(sort $(wildcard *.h))
PREFIX := Vdovetail
LIST := obj/$(PREFIX)_classes.mk
LIBRARY := $(if $(SYSTEMC),$(patsubst %/,%,$(dir $(firstword $(wildcard $(SYSTEMC)/lib*/libsystemc.*)))))
FLAGS := -std=gnu++17 -faligned-new -DVM_SC=1 -DVM_COVERAGE=0 -DVM_TRACE=0 -DVM_TRACE_FST=0 -DVM_TRACE_VCD=0 \
    -DVM_TRACE_SAIF=0 -DVM_TIMING=0 -I. -Iobj -isystem $(VERILATOR_ROOT)/include \
    -isystem $(VERILATOR_ROOT)/include/vltstd $(SYSTEMC:%=-isystem %/include)

COMPARE = for wanted in example/expected*.bin; do \
    cmp $$wanted $$(echo $$wanted | sed s/expected/memory/) || exit 1; done; echo equal

.PHONY: all run run-view clean
all: platform

ifneq ($(MAKECMDGOALS),clean)
include $(LIST)
endif

# Verilator only looks whether it is told of SystemC.
$(LIST): $(VERILOG)
	@mkdir -p obj
	VERILATOR_ROOT='$(VERILATOR_ROOT)' SYSTEMC_INCLUDE='$(or $(SYSTEMC),/usr)/include' \
	    SYSTEMC_LIBDIR='$(or $(LIBRARY),/usr/lib)' $(VERILATOR) --sc --pins64 --prefix $(PREFIX) \
	    --top-module dovetail -O3 --x-assign fast --x-initial fast --no-assert --no-timing --output-split 10000 \
	    -Wno-lint -Wno-fatal --Mdir obj $(VERILOG)

FASTS := $(addsuffix .o,$(addprefix obj/,$(VM_CLASSES_FAST) $(VM_SUPPORT_FAST)))
SLOWS := $(addsuffix .o,$(addprefix obj/,$(VM_CLASSES_SLOW) $(VM_SUPPORT_SLOW)))
GLOBALS := $(addsuffix .o,$(addprefix obj/,$(VM_GLOBAL_FAST) $(VM_GLOBAL_SLOW)))

$(FASTS): obj/%.o: obj/%.cpp $(LIST)
	$(CXX) $(FLAGS) $(FAST) -c $< -o $@
$(SLOWS): obj/%.o: obj/%.cpp $(LIST)
	$(CXX) $(FLAGS) $(SLOW) -c $< -o $@
$(GLOBALS): obj/%.o: $(VERILATOR_ROOT)/include/%.cpp
	$(CXX) $(FLAGS) $(FAST) -c $< -o $@
obj/main.o: main.cpp $(HEADERS) $(LIST)
	$(CXX) $(FLAGS) $(FAST) -Wall -Wextra -Werror -pedantic -c $< -o $@

platform: obj/main.o $(FASTS) $(SLOWS) $(GLOBALS)
	$(CXX) -o $@ $^ $(LIBRARY:%=-L% -Wl,-rpath,%) -lsystemc -lpthread

run: platform
	./platform < example/script
	@$(COMPARE)

run-view: platform
	./platform --view '$(PYTHON) -m dovetail.cosim.systemc.server config.toml' < example/script
	@$(COMPARE)

clean:
	rm -rf obj platform example/memory*.bin
