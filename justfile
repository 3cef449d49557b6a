# Recipes for users of `just`. Most recipes only run a target of the Makefile, which describes it.

default:
    @sed -n 's/^## //p' Makefile

# Runs any targets of the Makefile, for example: just make build demo
make +targets:
    make {{targets}}

build: (make "build")
demo: (make "demo")
fmt: (make "fmt")
lint: (make "lint")
test: (make "test")
check: (make "check")
book: (make "site")
serve_book: (make "serve-book")
local-testnet *flags: (make "build")
    build/bin/psyche testnet start {{flags}}

# Start a chain on this machine and create a run on it: from configs/quickstart, or from configs/smoke (light).
setup-solana-localnet-test-run run_id="test" *flags: (make "build" "demo-data")
    RUN_ID={{run_id}} scripts/solana-localnet.sh {{flags}}
setup-solana-localnet-light-test-run run_id="test" *flags: (make "build" "demo-data")
    RUN_ID={{run_id}} CONFIG_FILE=configs/smoke/state.toml scripts/solana-localnet.sh {{flags}}

# Start one client of that run. The run begins when init_min_clients clients (see its configuration) have joined.
start-training-localnet-client run_id="test" *flags:
    RUN_ID={{run_id}} BATCH_SIZE=${BATCH_SIZE:-8} scripts/solana-client.sh --allow-local-paths {{flags}}
start-training-localnet-light-client run_id="test" *flags:
    RUN_ID={{run_id}} scripts/solana-client.sh --allow-local-paths {{flags}}
