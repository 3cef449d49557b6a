# For who types `just`: recipes are targets of the Makefile, which says what they do.

default:
    @sed -n 's/^## //p' Makefile

# any targets: just make build demo
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

# A chain on this machine with a run of configs/quickstart on it; light: of configs/smoke.
setup-solana-localnet-test-run run_id="test" *flags: (make "build" "demo-data")
    RUN_ID={{run_id}} scripts/solana-localnet.sh {{flags}}
setup-solana-localnet-light-test-run run_id="test" *flags: (make "build" "demo-data")
    RUN_ID={{run_id}} CONFIG_FILE=configs/smoke/state.toml scripts/solana-localnet.sh {{flags}}

# A client of that run. It needs as many as init_min_clients of the configuration.
start-training-localnet-client run_id="test" *flags:
    RUN_ID={{run_id}} BATCH_SIZE=${BATCH_SIZE:-8} scripts/solana-client.sh --allow-local-paths {{flags}}
start-training-localnet-light-client run_id="test" *flags:
    RUN_ID={{run_id}} scripts/solana-client.sh --allow-local-paths {{flags}}
