# Everything a person or CI runs. `make demo` and `make test` are the way in.

GO     ?= go
BUILD  := build
BIN    := $(BUILD)/bin
SHIM   := $(BUILD)/lib/libpsyche_torch.so
DEMO   := $(BUILD)/quickstart
LINT   := $(BUILD)/tools/golangci-lint
DEMO_CONFIG ?= configs/quickstart
DEMO_KILL   ?= 30
DEMO_SLOT_MS ?= 400
LOAD_CLIENTS ?= 256

# What needs libtorch. Everything else builds and tests without cgo.
LEARNING := ./torch/... ./model/... ./train/... ./eval/... ./cmd/psyche-client/... ./e2e/... ./bench/...
PLAIN     = $(or $(shell $(GO) list ./... | grep -v -E '/(torch|model|train|eval|cmd/psyche-client|e2e|bench)(/|$$)'),$(error go list failed))
STATIC    = $(or $(shell $(GO) list ./... | grep -v -E '/(torch|model|train|distro|eval|cmd/psyche-client|e2e|bench)(/|$$)'),$(error go list failed)) ./distro/codec

.PHONY: all sim build setup shim demo demo-solana demo-data test-solana test test-plain test-torch race fuzz load internet solana-program static lint fmt-check vet bench bench-step bench-distro bench-round bench-parity bench-audit clean

all: build

## demo: prepare data and a model, train with three clients, show the result
demo: build demo-data
	$(BIN)/psyche testnet start --num-clients 3 --config-path $(DEMO_CONFIG) --kill-at-step $(DEMO_KILL) --run-dir $(BUILD)/runs

## demo-solana: the same on a chain of this machine, in place of a server, with what it costs
demo-solana: build demo-data
	$(BIN)/psyche testnet start --backend solana --slot-ms $(DEMO_SLOT_MS) --num-clients 3 --config-path $(DEMO_CONFIG) --kill-at-step $(DEMO_KILL) --run-dir $(BUILD)/runs

## build: both programs, links with the names of the original's, and the libtorch shim
build: setup shim
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/psyche ./cmd/psyche
	$(GO) build -trimpath -o $(BIN)/psyche-client ./cmd/psyche-client
	ln -sf psyche $(BIN)/psyche-centralized-server
	ln -sf psyche $(BIN)/psyche-centralized-local-testnet
	ln -sf psyche-client $(BIN)/psyche-centralized-client
	ln -sf psyche $(BIN)/psyche-solana-client

## setup: install what is missing, or say what is
setup:
	@scripts/setup.sh

shim: setup
	@scripts/build-shim.sh

demo-data: build
	@scripts/quickstart-data.sh $(BIN) $(DEMO)

## test: the whole test suite
test: test-plain test-torch

test-plain:
	$(GO) test $(PLAIN)

test-torch: shim
	PSYCHE_REQUIRE_TORCH=1 $(GO) test -p 1 $(LEARNING)

## sim: simulate 1,000 runs of 64 clients under faults
sim:
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/psyche ./cmd/psyche
	$(BIN)/psyche sim --seeds 1..1000 --clients 64

## load: as many clients with fake trainers on a server as a run may have (LOAD_CLIENTS), one killed each second; 200 kills of the server
load:
	$(GO) test ./server -run TestLoad -v -load.clients $(LOAD_CLIENTS) -load.rounds 50 -load.train 500ms -timeout 15m
	$(GO) test ./server -run TestKill -v -kills 200 -timeout 15m

## internet: a run over links with delay, loss and a rate, one of them cut (needs root)
internet: shim
	PSYCHE_REQUIRE_TORCH=1 $(GO) test ./e2e/netlab ./e2e -run 'Internet|Firewall|Uplink|Delay|Guarded' -internet -v -timeout 20m

## race: the race detector over everything that runs no tensors; long tables are cut short, and
## the tests that compare Go with the program in C, which have one goroutine, are left out
race:
	$(GO) test -race -short $(filter-out %/solana/programtest,$(PLAIN))

## fuzz: every decoder, FUZZTIME each (60s)
FUZZTIME ?= 60s
fuzz:
	scripts/fuzz.sh $(FUZZTIME)

## test-solana: the program on litesvm (LITESVM names its node_modules), a run on a real solana-test-validator; says what is not installed
test-solana: shim
	$(GO) test ./solana/programtest -run 'LiteSVM' -count 1 -v
	PSYCHE_REQUIRE_TORCH=1 $(GO) test ./e2e -run 'TestSolana' -count 1 -v -timeout 20m

## solana-program: the program of a run on Solana from its sources (needs clang-19), with its hash
solana-program:
	$(GO) test ./solana/program -run TestSources -count 1 -v -update

## static: everything outside learning builds without cgo
static:
	CGO_ENABLED=0 $(GO) build $(STATIC)

## lint: format, vet, golangci-lint
lint: fmt-check vet $(LINT)
	$(LINT) run ./...

fmt-check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi

vet:
	$(GO) vet ./...

$(LINT): tools/go.mod
	$(GO) build -modfile=tools/go.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

## bench: measured ratios against a named baseline, in one run; the loss from the logs of bench-parity
bench: shim bench-step bench-distro bench-round
	$(GO) run ./bench/parity table
	$(GO) test -run '^$$' -bench . -benchtime 1s ./coordinator ./distro/... ./p2p/blob
	$(GO) test -p 1 -run '^$$' -bench . -benchtime 3x ./model/llama ./train

## bench-step: training steps against eager PyTorch, a quarter of an hour
bench-step: shim
	$(GO) run ./bench/step

## bench-distro: what the optimizer costs, against PyTorch, a training step and the entropy bound
bench-distro: shim
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(GO) run ./bench/distro

## bench-round: what share of a round clients compute in, and where the rest goes, about ten minutes; links with a delay need root
bench-round: build
	$(GO) run ./bench/round

## bench-parity: DisTrO against AdamW at equal tokens: every run without a log, hours of one core
bench-parity: build
	test -e $(BUILD)/parity/data/data.json || $(BIN)/psyche data tokenize --include '*.go' --held-out-fraction 0.02 --output $(BUILD)/parity/data $$($(GO) env GOROOT)/src
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(GO) run ./bench/parity plan bench/parity/plan.txt
	$(GO) run ./bench/parity table

## bench-audit: how far honest trainers with different libraries are apart, and attackers from them; an hour, or more with PSYCHE_TEST_SHIM2
bench-audit: shim
	$(GO) run ./bench/audit calibrate --name first
	$(GO) run ./bench/audit table
	$(GO) run ./bench/audit cost

clean:
	rm -rf $(BUILD)
