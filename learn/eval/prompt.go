package eval

import "context"

// PromptTask is the name of the task that only generates a text.
const PromptTask = "prompt"

// Settings for texts that a model generates for people to read.
const (
	promptTokens      = 256
	promptTemperature = 0.6
)

// prompts are starts of texts.
var prompts = []string{
	"The ship left the harbour before dawn, and nobody on the quay knew",
	"A recipe for bread that needs no kneading: first,",
	"The difference between weather and climate is that",
	"In the year 1850 a letter took three weeks to cross the sea. Today",
	"def is_prime(n):\n    \"\"\"Tell whether n is a prime number.\"\"\"\n",
	"Dear neighbours, the garden behind our houses",
	"The proof begins with a triangle whose sides",
	"When bees return to their hive they dance, because",
	"The judge looked at both of them for a long time. Then she said:",
	"Three things are needed to repair a bicycle tyre:",
}

// Prompt returns the prompt with a number.
func Prompt(number uint64) string { return prompts[number%uint64(len(prompts))] }

// GoOn lets the model continue a text. The same model and seed give the same continuation.
func (r Reader) GoOn(ctx context.Context, text string, seed uint64) (string, error) {
	ids, err := r.Coder.EncodeWithSpecial([]byte(text))
	if err != nil {
		return "", err
	}
	limit := promptTokens
	if r.MaxWritten > 0 {
		limit = r.MaxWritten
	}
	return r.goOn(ctx, ids, writing{limit: limit, temperature: promptTemperature, seed: seed})
}
