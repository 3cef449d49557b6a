// Package openai answers requests in the form of OpenAI's API, so that programs written for that
// talk to a model of one's own: POST /v1/chat/completions and /v1/completions, whole or as
// server-sent events, GET /v1/models and /healthz.
//
// [New] takes a [Model], which is a tokenizer, a chat template and a function that writes tokens,
// and [Server.Serve] answers until its context ends. A request for something that this package
// does not do is refused by name: only fields that change no text are ignored. A request has a text, or
// choice, for each of its prompts. Calls of tools are found in the form that the chat template teaches.
// Requests beyond what may run and wait are refused at once.
package openai
