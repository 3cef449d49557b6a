package main

import "github.com/psyche-go/psyche/cmd/internal/manual"

// examples are shown by --help and in the man page; a test parses each.
var examples = manual.Examples{
	"host texts",
	"host texts --friends 5 --link 100mbit --hours 8 --model medium",
	"host texts --open --public-addr run.example.org",
	"testnet start --config-path configs/quickstart",
	"testnet start --config-path configs/quickstart --num-clients 5 --kill-at-step 20",
	"testnet start --resume runs/quickstart-20260101-120000",
	"testnet start --config-path configs/cheats --num-clients 6 --cheat 3=negated --cheat 4=copy",
	"server run --state state.toml --save-state-dir server",
	"server run --state state.toml --data-config data.toml --save-state-dir server --http-addr 127.0.0.1:8080",
	"server run --allow-create anyone --save-state-dir server",
	"server validate-config --state state.toml --data-config data.toml",
	"run create --server-addr host.example:39405 --state state.toml --keypair owner.json",
	"run invite --server-addr host.example:39405 --run-id friends",
	"run status --server-addr host.example:39405 --run-id friends",
	"run list --server-addr host.example:39405",
	"run set-paused --server-addr host.example:39405 --run-id friends true --keypair owner.json",
	"run export --server-addr host.example:39405 --run-id friends --output friends.log",
	"run export --server-addr host.example:39405 --run-id friends --output friends.html --html",
	"run replay friends.log",
	"run receipt friends.log --member KEY --output mine.receipt.json",
	"run receipt friends.log --verify mine.receipt.json",
	"run examine friends.log --entry 1234 --exhibit exhibit.bin",
	"data tokenize --tokenizer bytes --include '*.go' --held-out-fraction 0.01 --output data sources",
	"data samples --tokenizer model --seq-len 2048 --output samples conversations.jsonl",
	"data inspect data",
	"chain start --ledger chain.ledger",
	"keys new --output owner.json",
	"keys show owner.json",
	"dash --follow friends@host.example:39405",
	"sim --seeds 1..100 --clients 16 --faults all",
}
