package chat

import (
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/filestart"
)

// TestWrongFiles checks that a model's file without a valid template or tokens is named in the
// error, and that its content is not rendered.
func TestWrongFiles(t *testing.T) {
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
	for _, test := range []struct {
		name, content, want string
		err                 error
	}{
		{"chat_template.jinja", pointer, "chat template", filestart.ErrPointer},
		{"chat_template.jinja", "\xff\xfea\x00", "chat template", filestart.ErrUTF16},
		{"tokenizer_config.json", `{"chat_template":{"default":"x"}}`, `chat_template is {"default":"x"}`, errShape},
		{"tokenizer_config.json", `{"bos_token":5}`, "tokenizer_config.json: wrong kind of value: bos_token is 5", errShape},
		{"tokenizer_config.json", `{"eos_token":{"lstrip":false}}`, "eos_token is {", errShape},
		{"tokenizer_config.json", `[]`, "tokenizer_config.json: wrong kind of value: want a JSON object", errShape},
	} {
		_, _, err := Load(func(name string) ([]byte, bool) { return []byte(test.content), name == test.name })
		if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: %v", test.name, test.content, err)
		}
	}
}
