// Package chat renders the chat template of a tokenizer: the messages of a conversation as the
// one text that a model goes on from.
//
// Such a template is a program in Jinja's language, and comes with a model from anywhere. This
// package interprets the language like jinja2 with the settings of transformers' apply_chat_template
// (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loopcontrols). An error that wraps
// [ErrUnsupported] names each feature that is missing, at the latest when a template uses it; no feature
// changes the text silently. A template cannot read files, and its size, nesting, steps and text are
// bounded: [ErrTooMuch].
//
// EncodeForTraining says which tokens of a conversation are the assistant's.
package chat
