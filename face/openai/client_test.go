package openai

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestOpenAIsClient checks that OpenAI's own package for Python can use a server, if Python has the
// package. PYTHONPATH can name its folder.
func TestOpenAIsClient(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "python3", "-c", "import openai").CombinedOutput(); err != nil {
		t.Skipf("needs python3 with the package openai (pip install openai): %v %.200s", err, out)
	}
	const answer = "naïve 日本 🙂!"
	m := described(t, says(answer))
	m.Context = 1000
	url := start(t, m, limits, "secret")
	calls := described(t, says("I look."+called1))
	calls.Context, calls.Template = 1000, parsed(t, hermesTemplate)
	calling := start(t, calls, limits, "secret")
	out, err := exec.CommandContext(ctx, "python3", "-B", "../../scripts/reference/openai_client.py", url, "secret", "toy", answer, calling).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("%v\n%s", err, out)
	}
}
