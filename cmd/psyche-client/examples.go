package main

import "github.com/psyche-go/psyche/cmd/internal/manual"

// examples are shown by --help and in the man page; a test parses each.
var examples = manual.Examples{
	"join 'psyche://host.example:39405/friends?key=KEY&genesis=HASH'",
	"join 'psyche://host.example:39405/friends?key=KEY&genesis=HASH' --device cuda --micro-batch-size 4 --logs tui",
	"train --server-addr host.example:39405 --run-id friends --checkpoint-dir checkpoints",
	"serve 'psyche://host.example:39405/friends?key=KEY&genesis=HASH' 'psyche://other.example/large?key=KEY&genesis=HASH'",
	"serve 'psyche://host.example:39405/friends?key=KEY&genesis=HASH' -- --device cuda --micro-batch-size 4",
	"serve --runs runs.toml",
	"init-model --config configs/quickstart/model.json --seed 1 --output model",
	"solo --model model --data-path data --steps 200 --save trained",
	"evaluate --model trained --data data/heldout",
	"generate --model trained --prompt 'func main() {'",
	"serve-model --model trained",
	"serve-model --model Qwen/Qwen3-0.6B --http-addr 0.0.0.0:8000 --api-key-file key.txt --device cuda",
	"download Qwen/Qwen3-0.6B",
	"upload trained me/my-model",
}
