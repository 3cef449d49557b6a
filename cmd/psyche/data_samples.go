package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/files/data/prepare"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

type dataSamples struct {
	Output        string   `required:"" placeholder:"DIR" help:"Output folder, which a run can name as Preprocessed data."`
	Tokenizer     string   `required:"" placeholder:"FOLDER" help:"Model folder with a tokenizer.json and a chat template, or OWNER/NAME of such a model on the Hugging Face Hub. With --chat-template, a tokenizer.json file is enough."`
	ChatTemplate  string   `placeholder:"FILE" help:"Chat template to use instead of the folder's."`
	SeqLen        int      `default:"2048" placeholder:"N" help:"Maximum tokens per sample: max_seq_len of the run (${default})."`
	Strict        bool     `help:"Refuse unknown keys of conversations instead of counting them."`
	IncludeHidden bool     `help:"Also read lock files, metadata, and files and folders whose names begin with a dot."`
	Paths         []string `arg:"" name:"path" type:"path" help:"Files, or folders of files, with a JSON object in every line (*.jsonl, *.ndjson) or an array of objects (*.json): messages of role and content, conversations of from and value, or instruction and output. They may be compressed (.gz, .zst, .lz4, .br)."`
}

// maxTemplate limits the tokenizer files that are read for the chat template.
const maxTemplate = 16 << 20

// Run makes the samples.
func (c dataSamples) Run(ctx context.Context, to console) error {
	coder, err := loadTokenizer(ctx, c.Tokenizer)
	if err != nil {
		return err
	}
	template, named, err := c.template()
	if err != nil {
		return err
	}
	made, err := prepare.Converse(ctx, prepare.SampleOptions{
		Paths: c.Paths, Hidden: c.IncludeHidden, Strict: c.Strict, Output: c.Output, SeqLen: c.SeqLen, Tokenizer: coder, Template: template, Tokens: named,
	})
	if err != nil {
		return err
	}
	if made.Refused > 0 {
		_, _ = fmt.Fprintf(to.err, "the first refused: %v\n", made.Refusal)
	}
	if len(made.Unread) > 0 {
		_, _ = fmt.Fprintf(to.err, "unread keys: %v; --strict refuses them\n", made.Unread)
	}
	if made.Others > 0 {
		_, _ = fmt.Fprintf(to.err, "skipped %d files that do not contain conversations in JSON\n", made.Others)
	}
	left := made.Long + made.Unlearned + made.Refused
	_, err = fmt.Fprintf(to.out, "%s: %d samples of %d conversations, %d tokens, %d of them learned; left out: %d longer than %d tokens, %d without an answer, %d refused%s\n",
		c.Output, made.Samples, made.Conversations-left, made.Tokens, made.Learned, made.Long, c.SeqLen, made.Unlearned, made.Refused, made.Met)
	return err
}

// template reads the chat template, and the tokens that it uses by name.
func (c dataSamples) template() (*chat.Template, map[string]string, error) {
	var unread error
	template, named, err := chat.Load(func(name string) ([]byte, bool) {
		path := filepath.Join(c.Tokenizer, name)
		if c.ChatTemplate != "" && name == "chat_template.jinja" {
			path = c.ChatTemplate
		}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) && path != c.ChatTemplate || err == nil && info.IsDir() {
			return nil, false
		}
		if err == nil && info.Size() > maxTemplate {
			err = fmt.Errorf("%s has %d bytes, the limit is %d", path, info.Size(), maxTemplate)
		}
		var content []byte
		if err == nil {
			content, err = os.ReadFile(path)
		}
		unread = errors.Join(unread, err)
		return content, err == nil
	})
	if unread != nil {
		return nil, nil, fmt.Errorf("read the chat template: %w", unread)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("chat template of %s: %w; choose a template with --chat-template", c.Tokenizer, err)
	}
	return template, named, nil
}
