// Package openai implements a server for OpenAI's API, so that existing API clients can use a local
// model. It serves POST /v1/chat/completions and /v1/completions, complete or as server-sent
// events, GET /v1/models and /healthz.
//
// [New] takes a [Model], which consists of a tokenizer, a chat template and a function that
// generates tokens. [Server.Serve] serves until its context ends. The server rejects unsupported
// fields by name, and ignores only fields that do not affect the text. An answer has one text,
// called choice, for each prompt. The server recognizes tool calls in the syntax of the chat
// template. It rejects requests beyond its limits of running and waiting requests at once.
package openai
