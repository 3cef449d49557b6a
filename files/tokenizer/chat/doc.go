// Package chat renders the chat template of a tokenizer: it writes the messages of a conversation as
// the single text that a model continues.
//
// The main type is [Template]. [Parse] makes one from its source, and [Load] from the files of a
// model; [Template.Render] writes a text.
//
// A template is a program in the Jinja language, and comes with a model from any source. This package
// interprets the language like jinja2 with the settings of transformers' apply_chat_template
// (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loopcontrols). For each missing feature,
// an error that wraps [errUnsupported] names it, at the latest when a template uses it; no feature
// changes the text silently. A template cannot read files, and its size, nesting, steps and text are
// bounded: [errTooMuch].
//
// [Template.EncodeForTraining] reports which tokens of a conversation belong to the assistant.
package chat
