package member

import (
	"testing"

	"github.com/psyche-go/psyche/record/config"
)

func TestArchitectureOfARun(t *testing.T) {
	for _, test := range []struct {
		run  config.Architecture
		of   string
		fits bool
	}{
		{config.HfLlama, "LlamaForCausalLM", true},
		{config.HfLlama, "DeepseekV3ForCausalLM", false},
		{config.HfDeepseek, "DeepseekV2ForCausalLM", true},
		{config.HfDeepseek, "DeepseekV3ForCausalLM", true},
		{config.HfDeepseek, "LlamaForCausalLM", false},
		{config.HfAuto, "DeepseekV3ForCausalLM", true},
		{config.Torchtitan, "LlamaForCausalLM", true},
	} {
		if err := fitsArchitecture(test.run, test.of); (err == nil) != test.fits {
			t.Errorf("%s with a %s: error %v", test.run, test.of, err)
		}
	}
}
