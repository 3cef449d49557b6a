package chat

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/golden"
)

// TestWrongFiles checks that a model's file without a valid template or tokens is named in the
// error, and that its content is not rendered.
func TestWrongFiles(t *testing.T) {
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
	for _, test := range []struct {
		name, content string
		err           error
	}{
		{"chat_template.jinja", pointer, filestart.ErrPointer},
		{"chat_template.jinja", "\xff\xfea\x00", filestart.ErrUTF16},
		{"tokenizer_config.json", `{"chat_template":{"default":"x"}}`, errShape},
		{"tokenizer_config.json", `{"bos_token":5}`, errShape},
		{"tokenizer_config.json", `{"eos_token":{"lstrip":false}}`, errShape},
		{"tokenizer_config.json", `[]`, errShape},
	} {
		_, _, err := Load(func(name string) ([]byte, bool) { return []byte(test.content), name == test.name })
		if !errors.Is(err, test.err) {
			t.Errorf("%s %q: got %v; want error %v", test.name, test.content, err, test.err)
		}
		golden.Message(t, test.name+": "+test.content, err)
	}
}
