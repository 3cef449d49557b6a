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
book: (make "site")
local-testnet *flags: (make "build")
    build/bin/psyche testnet start {{flags}}
