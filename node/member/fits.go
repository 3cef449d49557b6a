package member

import (
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/deepseek"
	"github.com/psyche-go/psyche/learn/model/llama"
	"github.com/psyche-go/psyche/record/config"
)

// architectures contains, for each architecture of a run, the architecture names that the model's
// config.json may contain. An architecture without an entry allows any name.
var architectures = map[config.Architecture][]string{
	config.HfLlama:    {llama.Architecture},
	config.HfDeepseek: {deepseek.ArchitectureV2, deepseek.ArchitectureV3},
}

// Fits returns the reason why a run cannot train a model, or nil.
func Fits(run config.Model, description model.Description) error {
	if err := fitsArchitecture(run.Architecture, description.Architecture); err != nil {
		return err
	}
	if int64(run.MaxSeqLen) > int64(description.MaxTokens) {
		return fmt.Errorf("the run trains sequences of %d tokens (max_seq_len), and the model takes %d at most (max_position_embeddings)", run.MaxSeqLen, description.MaxTokens)
	}
	return nil
}

// fitsArchitecture compares the architecture in the run's definition with the model's.
func fitsArchitecture(run config.Architecture, of string) error {
	if want, known := architectures[run]; known && !slices.Contains(want, of) {
		return fmt.Errorf("the run's model.LLM.architecture is %s, but its model is a %s; want one of %q", run, of, want)
	}
	return nil
}
