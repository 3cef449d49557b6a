package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/base/pythonjson"
	"github.com/psyche-go/psyche/base/sysmemory"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/generate"
)

type initModelCommand struct {
	Config    string `required:"" type:"existingfile" placeholder:"FILE" help:"Model configuration in Hugging Face's config.json format."`
	Output    string `required:"" type:"path" placeholder:"DIR" help:"Output folder, created by this command."`
	Seed      uint64 `default:"0" help:"Seed for the random weights: the same seed gives the same bits on every machine."`
	Tokenizer string `default:"bytes" enum:"bytes,none" help:"Tokenizer to include: ${enum}."`
}

// Run creates a model folder in the Hugging Face format. It does not need libtorch.
func (c *initModelCommand) Run(t terminal) error {
	if entries, err := os.ReadDir(c.Output); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty; choose another folder", c.Output)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	config, err := os.ReadFile(c.Config)
	if err != nil {
		return err
	}
	description, err := model.Describe(config)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Config, err)
	}
	if err := memory.Fits("the weights", description.Memory().Weights(), sysmemory.Allocatable()); err != nil {
		return fmt.Errorf("%s: %d parameters: %w, or choose smaller values of hidden_size, num_hidden_layers and vocab_size", c.Config, description.NumParameters, err)
	}
	_ = checkpoint.RemoveUnfinishedOf(c.Output) // leftovers take space; the next check reports what is still missing
	if err := diskspace.Check(c.Output, "the weights", description.Memory().Weights(), nil); err != nil {
		return fmt.Errorf("--output: %w, or choose another folder", err)
	}
	s := checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: config}}}
	warnOfTokens(s, filepath.Dir(c.Config), t.logger())
	if err := c.addFiles(&s, description); err != nil {
		return fmt.Errorf("%s: %w", c.Config, err)
	}
	m, done := meter.New(t.Err, "psyche-client: drawing the weights"), int64(0)
	m.At(0, description.NumParameters)
	s.Tensors, err = model.InitWatched(config, c.Seed, func(numbers int64) {
		done += numbers
		m.At(done, description.NumParameters)
	})
	m.Done()
	if err != nil {
		return fmt.Errorf("%s: %w", c.Config, err)
	}
	s.Sort()
	s.NameType()
	if err := checkpoint.WriteDir(c.Output, s); err != nil {
		return diskspace.Explain(err, "nothing was kept; remove other files, or choose another --output, and run the command again")
	}
	digest := s.Manifest().Digest()
	_, err = fmt.Fprintf(t.Out, "made %s: %s, %d parameters, digest %x\n", c.Output, description.Architecture, description.NumParameters, digest[:8])
	return err
}

// addFiles adds the files that transformers expects in addition to the config and the weights.
func (c *initModelCommand) addFiles(s *checkpoint.Snapshot, description model.Description) error {
	config, _ := s.File(checkpoint.ConfigFile)
	special, err := specialTokens(config)
	if err != nil {
		return err
	}
	if err := add(s, generate.ConfigFile, special); err != nil {
		return err
	}
	if c.Tokenizer == "none" {
		return nil
	}
	bytes := tokenizer.Bytes()
	if description.VocabSize < bytes.VocabSize() {
		return fmt.Errorf("vocab_size is %d, the tokenizer %q needs %d", description.VocabSize, c.Tokenizer, bytes.VocabSize())
	}
	s.Files = append(s.Files, checkpoint.File{Name: tokenizerFile, Data: bytes.JSON()})
	return add(s, "tokenizer_config.json", map[string]any{
		"tokenizer_class":              "PreTrainedTokenizerFast",
		"model_max_length":             description.MaxTokens,
		"clean_up_tokenization_spaces": false,
	})
}

const tokenizerFile = "tokenizer.json"

// specialTokens returns the ids in a config.json that text generation needs.
func specialTokens(config []byte) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(pythonjson.Quoted(config), &all); err != nil {
		return nil, err
	}
	special := map[string]json.RawMessage{}
	for _, key := range []string{"bos_token_id", "eos_token_id", "pad_token_id"} {
		if value, found := all[key]; found {
			special[key] = value
		}
	}
	return special, nil
}

func add(s *checkpoint.Snapshot, name string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	s.Files = append(s.Files, checkpoint.File{Name: name, Data: append(text, '\n')})
	return nil
}
