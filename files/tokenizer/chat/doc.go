// Package chat renders the chat template of a tokenizer: the messages of a conversation as the
// one text that a model goes on from.
//
// Such a template is a program in Jinja's language, and comes with a model from anywhere. This
// package interprets the part of the language that templates of models use, as jinja2 does it
// with the settings of transformers' apply_chat_template (ImmutableSandboxedEnvironment,
// trim_blocks, lstrip_blocks, loopcontrols). What it does not know is an error wrapping
// [ErrUnsupported] that names it, at the latest when it would be computed, and never another text.
// A template reaches no files, and its size, nesting, steps and text are bounded: [ErrTooMuch].
//
// EncodeForTraining says which tokens of a conversation are the assistant's.
package chat
