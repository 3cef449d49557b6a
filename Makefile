# All commands for developers and CI. Start with `make demo` and `make test`.

GO     ?= go
BUILD  := build
BIN    := $(BUILD)/bin
SHIM   := $(BUILD)/lib/libpsyche_torch.so
DEMO   := $(BUILD)/quickstart
LINT   := $(BUILD)/tools/golangci-lint
VULN   := $(BUILD)/tools/govulncheck
HUGO   := $(BUILD)/tools/hugo
DEMO_CONFIG ?= configs/quickstart
DEMO_KILL   ?= 30
DEMO_SLOT_MS ?= 400
LOAD_CLIENTS ?= 256

# LEARNING lists the packages that need libtorch. All other packages build and test without cgo.
MODULE   := github.com/psyche-go/psyche
LEARNING := ./proof/e2e ./proof/matrix/... ./learn/train/... ./learn/torch/... ./proof/e2e/... ./cmd/psyche-client/... ./learn/model/... ./learn/eval/... ./node/member/... ./cmd/internal/modelsource/... ./proof/bench/...
PLAIN     = $(or $(shell $(GO) list ./... | grep -v -E '/(learn/(torch|model|train|eval)|node/member|cmd/internal/modelsource|cmd/psyche-client|proof/(e2e|matrix|bench))(/|$$)'),$(error go list failed))
STATIC    = $(or $(shell $(GO) list ./... | grep -v -E '/(learn|node/member|cmd/internal/modelsource|cmd/psyche-client|proof/(e2e|matrix|bench))(/|$$)'),$(error go list failed))

# Folders of `make install`. DESTDIR is prepended to all of them.
prefix   ?= /usr/local
sysconfdir ?= /etc
unitdir  ?= $(prefix)/lib/systemd/system
ROOT      = $(DESTDIR)$(prefix)

# Where the maintainer publishes releases, and the minisign key that signs them. Neither is in the repository.
PSYCHE_RELEASES    ?=
PSYCHE_RELEASE_KEY ?=
export PSYCHE_RELEASES PSYCHE_RELEASE_KEY

.PHONY: cuda cuda-bundle release test-tools check kernels serve-book psyche psyche-client verifier licences install uninstall manual help-pages site deb systemd-run reproducible all sim sim-links matrix build setup shim cheat demo demo-cheat demo-solana demo-data test-solana test test-plain test-torch race precompile fuzz load internet slow-member solana-program static lint vuln plain fmt fmt-check vet bench bench-step bench-distro bench-round bench-peers bench-honest bench-parity bench-audit clean

all: build

## demo: prepare data and a model, train with three clients, show the result
demo: build demo-data
	$(BIN)/psyche testnet start --num-clients 3 --config-path $(DEMO_CONFIG) --kill-at-step $(DEMO_KILL) --run-dir $(BUILD)/runs

## demo-solana: the same on a local chain instead of a server; also shows the cost
demo-solana: build demo-data
	$(BIN)/psyche testnet start --backend solana --slot-ms $(DEMO_SLOT_MS) --num-clients 3 --config-path $(DEMO_CONFIG) --kill-at-step $(DEMO_KILL) --run-dir $(BUILD)/runs

## demo-cheat: train with six clients, two of which send false results; members detect them, and a jury ejects them
demo-cheat: build cheat demo-data
	$(BIN)/psyche testnet start --num-clients 6 --cheat 3=negated --cheat 4=copy --config-path configs/cheats --run-dir $(BUILD)/runs

## cheat: build the cheating member for testnets; it is not part of the product, an installation or a package
cheat: setup
	$(GO) build $(TRIMPATH) -o $(BIN)/psyche-cheat ./proof/e2e/cheat/cheater

# More flags for building programs. A change of TRIMPATH rebuilds every package.
TRIMPATH ?= -trimpath

# The commit that the programs print as their version, even if go build finds no repository. When building from a
# source archive, pass it: make build COMMIT=…
COMMIT  ?= $(shell git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null)

# The commit's tag, if it has one. Without it, the version of the programs ends with -dev.
TAG     ?= $(shell git describe --exact-match --match 'v[0-9]*' --dirty 2>/dev/null)
STAMP   := -X $(MODULE)/cmd/internal/buildinfo.commit=$(COMMIT) -X $(MODULE)/cmd/internal/buildinfo.tag=$(TAG)

# RPATH is the folder in which the client searches first for libraries that its libraries open, such as the parts of NVRTC.
# Only the older of the linker's two tags applies to them.
RPATH   ?=
LINK     = -extldflags "-Wl,--disable-new-dtags,-rpath,$(RPATH)"

## build: build both programs, links with the names of the original Psyche's programs, the libtorch shim, and the verifier for browsers
build: shim psyche psyche-client verifier
	ln -sf psyche $(BIN)/psyche-centralized-server
	ln -sf psyche $(BIN)/psyche-centralized-local-testnet
	ln -sf psyche-client $(BIN)/psyche-centralized-client
	ln -sf psyche $(BIN)/psyche-solana-client

psyche:
	CGO_ENABLED=0 $(GO) build $(TRIMPATH) -ldflags '$(STAMP)' -o $(BIN)/psyche ./cmd/psyche

## verifier: build the verifier, which pages send to browsers so that users can check a log themselves
verifier:
	@mkdir -p $(BUILD)/lib
	GOFLAGS= CGO_ENABLED=0 GOOS=js GOARCH=wasm $(GO) build -trimpath -buildvcs=false -ldflags '-s -w' -o $(BUILD)/lib/verifier.wasm ./face/dash/verify/wasm
	@gzip -9 -n -f $(BUILD)/lib/verifier.wasm
	@cp "$$($(GO) env GOROOT)/lib/wasm/wasm_exec.js" $(BUILD)/lib/

psyche-client: setup
	$(GO) build $(TRIMPATH) -ldflags '$(STAMP)$(if $(RPATH), $(LINK))' -o $(BIN)/psyche-client ./cmd/psyche-client

# CUDA is the folder of the libtorch for CUDA that scripts/libtorch-cuda.sh installs.
CUDA    := $(abspath $(BUILD))/cuda
BUNDLE  := $(BUILD)/cuda-bundle
VERSION  = $(shell cat cmd/internal/buildinfo/VERSION)

## cuda: build both programs for an NVIDIA GPU, with a libtorch for CUDA that pip downloads (2.5 GB)
cuda:
	scripts/libtorch-cuda.sh $(CUDA)
	LIBTORCH=$(CUDA)/torch $(MAKE) build RPATH=$(CUDA)/nvidia/cu13/lib

## cuda-bundle: make an archive of the client with libtorch for CUDA and all licences, in build/cuda-bundle
cuda-bundle:
	scripts/libtorch-cuda.sh $(CUDA)
	LIBTORCH=$(CUDA)/torch SHIM=$(BUNDLE)/libpsyche_torch.so SHIM_RPATH='$$ORIGIN/libtorch' scripts/build-shim.sh
	LIBTORCH=$(CUDA)/torch $(MAKE) psyche-client TRIMPATH=-trimpath RPATH='$$$$ORIGIN/../lib/psyche/libtorch' BIN=$(BUNDLE)
	CGO_ENABLED=1 scripts/licences.sh ./cmd/psyche-client >$(BUNDLE)/licences.txt
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0) packaging/cuda/bundle.sh $(CUDA) $(BUNDLE)/psyche-client \
	  $(BUNDLE)/libpsyche_torch.so $(BUNDLE)/licences.txt $(BUNDLE)/psyche-client-cuda-$(VERSION)-linux-amd64.tar.gz

## manual: write man pages and completions, generated from the programs' definitions
manual: build
	@mkdir -p $(BUILD)/manual
	@for program in psyche psyche-client; do \
	  $(BIN)/$$program print-man >$(BUILD)/manual/$$program.1 || exit 1; \
	  for shell in bash zsh fish; do $(BIN)/$$program completion $$shell >$(BUILD)/manual/$$program.$$shell || exit 1; done; \
	done

## help-pages: write docs/manual, generated from the programs' definitions
help-pages: build
	@for program in psyche psyche-client; do $(BIN)/$$program print-all-help --markdown >docs/manual/$$program.md || exit 1; done

## licences: list the third-party code in the programs, with its licences
licences:
	@mkdir -p $(BUILD)/licences
	CGO_ENABLED=0 scripts/licences.sh ./cmd/psyche >$(BUILD)/licences/psyche
	CGO_ENABLED=1 scripts/licences.sh ./cmd/psyche-client >$(BUILD)/licences/psyche-client

## site: build the book as web pages in build/site; compiles Hugo first, which takes minutes of CPU time
site: $(HUGO)
	$(HUGO) --source docs/site --destination $(abspath $(BUILD))/site --cleanDestinationDir --noBuildLock --panicOnWarning --quiet
	@echo "open $(BUILD)/site/index.html"

$(HUGO): docs/site/go.mod
	cd docs/site && CGO_ENABLED=0 $(GO) build -o $(abspath $@) github.com/gohugoio/hugo

## serve-book: serve the book at http://127.0.0.1:3000 (BOOK_PORT); pages update after each change
BOOK_PORT ?= 3000
serve-book: $(HUGO)
	$(HUGO) server --source docs/site --bind 127.0.0.1 --port $(BOOK_PORT) --renderToMemory --noBuildLock

## install: install both programs, the shim, the verifier, systemd units, man pages, completions and licences into prefix (/usr/local)
install: manual licences
	install -d $(ROOT)/bin $(ROOT)/lib/psyche $(ROOT)/share/man/man1 $(DESTDIR)$(unitdir) $(DESTDIR)$(sysconfdir)/psyche
	install -m 755 $(BIN)/psyche $(BIN)/psyche-client $(ROOT)/bin
	for name in psyche-centralized-server psyche-centralized-local-testnet psyche-solana-client; do ln -sf psyche $(ROOT)/bin/$$name; done
	ln -sf psyche-client $(ROOT)/bin/psyche-centralized-client
	install -m 644 $(SHIM) $(BUILD)/lib/verifier.wasm.gz $(BUILD)/lib/wasm_exec.js $(ROOT)/lib/psyche
	install -m 644 $(BUILD)/manual/psyche.1 $(BUILD)/manual/psyche-client.1 $(ROOT)/share/man/man1
	for program in psyche psyche-client; do \
	  install -D -m 644 $(BUILD)/manual/$$program.bash $(ROOT)/share/bash-completion/completions/$$program && \
	  install -D -m 644 $(BUILD)/manual/$$program.zsh $(ROOT)/share/zsh/vendor-completions/_$$program && \
	  install -D -m 644 $(BUILD)/manual/$$program.fish $(ROOT)/share/fish/vendor_completions.d/$$program.fish && \
	  install -D -m 644 $(BUILD)/licences/$$program $(ROOT)/share/doc/$$program/licences.txt && \
	  install -m 644 LICENSE NOTICE $(ROOT)/share/doc/$$program || exit 1; \
	done
	for unit in packaging/systemd/*.service; do \
	  sed 's#/usr/bin/#$(prefix)/bin/#' $$unit >$(DESTDIR)$(unitdir)/$$(basename $$unit) && chmod 644 $(DESTDIR)$(unitdir)/$$(basename $$unit) || exit 1; \
	done
	for file in server data-server client; do \
	  test -e $(DESTDIR)$(sysconfdir)/psyche/$$file.env || install -m 640 packaging/$$file.env $(DESTDIR)$(sysconfdir)/psyche; \
	done

## uninstall: remove the installed files, except /etc/psyche
uninstall:
	cd $(ROOT)/bin && rm -f psyche psyche-client psyche-centralized-server psyche-centralized-local-testnet psyche-solana-client psyche-centralized-client
	rm -rf $(ROOT)/lib/psyche
	rm -f $(ROOT)/share/man/man1/psyche.1 $(ROOT)/share/man/man1/psyche-client.1 $(DESTDIR)$(unitdir)/psyche-*.service
	for program in psyche psyche-client; do \
	  rm -f $(ROOT)/share/doc/$$program/licences.txt $(ROOT)/share/doc/$$program/LICENSE $(ROOT)/share/doc/$$program/NOTICE; \
	  rmdir $(ROOT)/share/doc/$$program 2>/dev/null; \
	  rm -f $(ROOT)/share/bash-completion/completions/$$program $(ROOT)/share/zsh/vendor-completions/_$$program $(ROOT)/share/fish/vendor_completions.d/$$program.fish; \
	done

## deb: build packages for this Debian or Ubuntu, into build/deb
deb: manual
	packaging/deb/build.sh $(BUILD)/deb

## systemd-run: run the packages' units under systemd in a container, and kill each one; needs root and systemd-container
systemd-run: deb demo-data
	scripts/systemd-run.sh $(BUILD)/deb $(DEMO)

## release: build archives, packages, checksums, a signature and the installer into build/release; see docs/install.md
release:
	rm -rf $(BUILD)/release
	$(GO) -C tools run ./release build

test-tools:
	$(GO) -C tools test ./release

## reproducible: build the static program twice, in two folders, and compare
reproducible:
	scripts/reproducible.sh

## setup: install missing dependencies, or list them
setup:
	@scripts/setup.sh

shim: setup
	@scripts/build-shim.sh

demo-data: build
	@scripts/quickstart-data.sh $(BIN) $(DEMO)

## test: run the whole test suite; packages that share memory run under the race detector, except SLOW_RACES
test: test-plain test-torch race test-tools

# LONG lists the packages whose tests take longest. They begin first, so that a core is not left idle at the end.
LONG        = $(addprefix $(MODULE)/,proof/sim node/client chain/programtest cmd/psyche learn/memory/fit learn/distro/cuda net/p2p/blob face/hosting host/server)
longest     = $(filter $(LONG),$(1)) $(filter-out $(LONG),$(1))

# Many of these tests wait for a clock or a connection, so run one more package at a time than there are cores.
test-plain:
	$(GO) test -p 3 $(call longest,$(filter-out $(RACED),$(PLAIN)))
	$(GO) test -p 3 -timeout 20m -run '$(SLOW_RACES)' $(call longest,$(SLOW))

# The end-to-end tests take longest and mostly wait, so they begin first; LEARNING has the other long packages next.
test-torch: shim
	PSYCHE_REQUIRE_TORCH=1 $(GO) test -p 3 -timeout 20m $(LEARNING)

## kernels: compare every kernel for NVIDIA GPUs with the CPU's on 300 random models, in an emulator of a GPU; minutes
kernels:
	PSYCHE_TEST_SEEDS=300 $(GO) test -timeout 40m -run TestAnyModel ./learn/distro/cuda

## sim: simulate 1,000 runs of 64 clients under faults, and 1,900 smaller runs: with honest members, with shares by speed, and with retries
sim: psyche
	$(BIN)/psyche sim --seeds 1..1000 --clients 64
	$(BIN)/psyche sim --seeds 1..1000 --clients 8 --faults honest
	$(BIN)/psyche sim --seeds 1..300 --clients 12 --rounds 12 --shares
	$(BIN)/psyche sim --seeds 1..300 --clients 12 --rounds 12 --faults honest --shares --retries
	$(BIN)/psyche sim --seeds 1..300 --clients 12 --rounds 12 --retries

## sim-links: simulate 2,000 runs of 12 clients on slow links with members that falsely accuse them, and 1,000 with coalitions
sim-links: psyche
	$(BIN)/psyche sim --seeds 1..2000 --clients 12 --rounds 12 --links --faults slanderer,hog
	$(BIN)/psyche sim --seeds 1..1000 --clients 12 --rounds 12 --links --faults gang,hog

## matrix: train runs that together cover all pairs of features, as many as fit into MATRIX_MINUTES (0: all), with the seed MATRIX_SEED
MATRIX_MINUTES ?= 60
MATRIX_SEED    ?= 1
matrix: build
	$(GO) run ./proof/matrix -minutes $(MATRIX_MINUTES) -seed $(MATRIX_SEED)

## load: load a server with as many clients with fake trainers as a run allows (LOAD_CLIENTS), killing one each second; then with 1,000 slow readers of a 67 MiB log; then kill it 200 times
load:
	$(GO) test ./host/server -run 'TestLoad$$' -v -load.clients $(LOAD_CLIENTS) -load.rounds 50 -load.train 500ms -timeout 15m
	$(GO) test ./host/server -run TestLoadOfLog -v -load.observers 1000 -load.members 64 -load.logrounds 2100 -timeout 15m
	$(GO) test ./host/server -run TestKill -v -kills 200 -timeout 15m

## internet: train over links with delay, loss and a rate limit, one of which is cut (needs root)
internet: shim
	PSYCHE_REQUIRE_TORCH=1 $(GO) test ./proof/e2e -run 'Internet|Firewall|SlowLines' -internet -v -timeout 20m

## slow-member: train with 16 members, one at 2 Mbit/s, with and without a member that accuses it (needs root)
slow-member: shim
	PSYCHE_REQUIRE_TORCH=1 $(GO) test ./proof/e2e -run TestSlowMember -internet -v -timeout 45m

# Tests of large runs, floods, juries and mutations take minutes each with the race detector, and other tests run the
# same code. Tests that measure give no useful result with it.
SLOW_RACES := TestAuditsBySpeed|TestEqualSpeeds|TestLargerBatchesCostNobody|TestMuchSlowerMemberKeepsItsSeat|TestSlowAuditorsGoOn|TestStrategies|TestThrottledMember|TestUtilisation|TestShares|TestMemberSlowsDown|TestTwoThirdsSetThePace|TestDeadMemberLosesItsSeat|TestMostTrainersOnSlowLinks|TestRetries|TestCheats|TestAccusedOn|TestWithholding|TestGivenToSomeOnly|TestReturnDespiteFalseAnswers|TestOneOfTwoLeaves|TestSilenceInShortRounds|TestFalseClaimMovesNothing|TestFalseDataConvictsNoMember|TestTrialsOutliveTheEpoch|TestJurorsAreInTime|TestAccomplicesCannotProtectACheat|TestNewcomersMomentum|TestCheatThatLeavesBeforeAuditsGainsLittle|TestFalseAccusationsOfSilence|TestHonestMembers|TestAllDie|TestTrained|TestAbandonedEpoch|TestFallingBackWaits|TestRecordedIntermediateCheckpoints|TestIntermediateCheckpoints|TestAllLeave|TestReturnFromAnIntermediateCheckpoint|TestCoalitionCannot|TestSilentConnections|TestFloodOfConnections|TestCrowd|TestCostOfFollowing|TestJoiningLate|TestLoad|TestFullRun|TestSeeds|TestChurn|TestCheckerCatches|TestCheckerKnows|TestLinks|TestWithholders|TestTermsOfLongEpochs|TestTrainingAhead|TestPastIsBounded|TestSlowMemberAmong|TestSlowObservers|TestSameSeedSameRun|TestLastStepAppliedInTheNextEpoch|TestMoreRoundsThanDraws|TestHogsDoNotLockOutAMember|TestDeployGoesOn|TestKilledClientIsNotEjected|TestEquivocatorIsEjected|TestJournalGrowsSlowly|TestLogReadersHoldLittleMemory

# RACED lists the packages whose code or tests start a goroutine, or share memory between goroutines. Other packages
# cannot race. The packages excluded by name only compute on all processors, or use a large library that would have
# to be compiled.
CONCURRENT := ^[[:space:]]*go (func|[a-zA-Z_.]+\()|errgroup|\.Go\(|sync\.(Mutex|RWMutex|WaitGroup|Once)|atomic\.
RACED       = $(or $(filter-out %/chain/programtest %/chain/program %/distro %/distro/cuda %/dash %/cmd/psyche %/cmd/internal/telemetry %/tracker/otlp %/tracker/otlp/otlptest %/tokenizer %/assign %/odds %/data/prepare,$(filter $(MODULE)/%,$(filter \
  $(shell grep -rlE --include='*.go' '$(CONCURRENT)' */ | xargs -n 1 dirname | sort -u | sed 's#^#$(MODULE)/#'),$(PLAIN)))),$(error no packages for the race detector))

SLOW        = $(addprefix $(MODULE)/,$(sort $(shell grep -lsE '^func ($(SLOW_RACES))' $(RACED:$(MODULE)/%=%/*_test.go) | xargs -n 1 dirname)))

## race: run the race detector on packages that share memory and use no tensors, except SLOW_RACES
race:
	$(GO) test -race -p 3 -timeout 20m -skip '$(SLOW_RACES)' $(call longest,$(RACED))

# Compiles the prerequisites of race and lint in advance.
precompile: $(LINT)
	$(GO) build -race $(RACED)

## fuzz: fuzz every decoder, each for FUZZTIME (60s)
FUZZTIME ?= 60s
fuzz:
	scripts/fuzz.sh $(FUZZTIME)

## test-solana: test the program on litesvm (LITESVM is its node_modules), and a run on a real solana-test-validator; reports missing tools
test-solana: shim
	$(GO) test ./chain/programtest -run 'LiteSVM' -count 1 -v
	PSYCHE_REQUIRE_TORCH=1 $(GO) test ./proof/e2e -run 'TestSolana' -count 1 -v -timeout 20m

## solana-program: build a run's Solana program from its sources (needs clang-19), with its hash
solana-program:
	$(GO) test ./chain/program -run TestSources -count 1 -v -update

## static: build everything outside learning without cgo
static:
	CGO_ENABLED=0 $(GO) build $(STATIC)

## lint: check the format, and run golangci-lint with go vet's checks
lint: fmt-check $(LINT)
	$(LINT) run ./...

## plain: check for plain English in pages, help texts, messages, the dashboard and new commit subjects; limits in hits per 1,000 lines, for comments also in each top-level folder
PLAIN_MAX := markdown=10 help=10 message=10 page=10 comment=10
plain:
	$(GO) -C tools test ./plain
	@$(GO) -C tools run ./plain -q -commits 20 $(addprefix -max ,$(PLAIN_MAX)) -max-folder comment=10 || \
	  { echo "To list the hits, run: go -C tools run ./plain (add -changed main for your lines only)"; exit 1; }

## check: CI's quick checks: format, both builds, lint, plain English; .ci/run adds tests, fuzzing and the demo
check: fmt-check build static lint plain

## fmt: format all sources with gofmt
fmt:
	gofmt -w $$(git ls-files '*.go')

fmt-check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi

vet:
	$(GO) vet ./...

$(LINT): tools/go.mod
	$(GO) build -modfile=tools/go.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

## vuln: check the programs for known vulnerabilities; skipped if the database is unreachable
vuln: $(VULN)
	scripts/vuln.sh $(VULN)

$(VULN): tools/go.mod
	$(GO) build -modfile=tools/go.mod -o $@ golang.org/x/vuln/cmd/govulncheck

## bench: measure ratios against a named baseline, in one run; the loss comes from the logs of bench-parity
bench: shim bench-step bench-distro bench-round
	$(GO) run ./proof/bench/parity table
	$(GO) test -run '^$$' -bench . -benchtime 1s ./core/coordinator ./learn/distro/... ./net/p2p/blob
	$(GO) test -p 1 -run '^$$' -bench . -benchtime 3x ./learn/model/llama ./learn/train

## bench-step: compare training steps with eager PyTorch, a quarter of an hour
bench-step: shim
	$(GO) run ./proof/bench/step

## bench-distro: compare the optimizer's cost with PyTorch, a training step and the entropy bound
bench-distro: shim
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(GO) run ./proof/bench/distro

## bench-round: measure the share of a round in which clients compute, and how the rest of the round is spent; about ten minutes; links with a delay need root
bench-round: build
	$(GO) run ./proof/bench/round

## bench-peers: compare the time to reach a loss, on several links, with PyTorch and Hivemind; PYTHON is an interpreter that has both; an hour; links need root
bench-peers: build
	$(GO) run ./proof/bench/peers $(if $(PYTHON),-python $(PYTHON))

## bench-honest: test honest members under stress, with and without audits, an hour; slow links need root
bench-honest: build
	$(GO) run ./proof/bench/honest

## bench-parity: compare DisTrO with AdamW at equal tokens: makes every run of the plan that has no log yet; hours on one core
bench-parity: build
	test -e $(BUILD)/parity/data/data.json || $(BIN)/psyche data tokenize --include '*.go' --held-out-fraction 0.02 --output $(BUILD)/parity/data $$($(GO) env GOROOT)/src
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(GO) run ./proof/bench/parity plan proof/bench/parity/plan.txt
	$(GO) run ./proof/bench/parity table

## bench-audit: measure how far results of honest trainers with different libraries differ, and how far attackers differ from them; an hour, or more with PSYCHE_TEST_SHIM2
bench-audit: shim
	$(GO) run ./proof/bench/audit calibrate --name first
	$(GO) run ./proof/bench/audit table

clean:
	rm -rf $(BUILD)
