package hosting

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/face/dash/samples"
	"github.com/psyche-go/psyche/face/dash/talk"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/recipe"
	"github.com/psyche-go/psyche/record/invite"
)

// The samples of a finished run. The models compute only after the run, so they never delay a round.
const (
	samplesFile   = "samples.json"
	sampleTokens  = 120
	sampleTime    = 3 * time.Minute // for one text, including the time to load the model
	defaultPrompt = "The"
	promptTokens  = 64
	promptBytes   = 60
)

// chatGrace is the time limit for the model's server to end.
const chatGrace = 10 * time.Second

// chatKey is the environment variable with the API key of the chat, for serve-model and for the server.
const chatKey = "PSYCHE_API_KEY"

// product generates the samples of a finished run, and serves its model for the page's chat until ctx ends. step is the
// number of rounds that trained the model. Samples and chat are extras, so product only prints errors.
func (h *host) product(ctx context.Context, link invite.Link, step uint32) {
	if err := h.sample(ctx, link, step); err != nil && ctx.Err() == nil {
		h.printf("The page has no samples of the model: %v\n", err)
	}
	if !h.Chat || ctx.Err() != nil {
		return
	}
	h.printf("The page http://%s has a chat with the model as soon as the model is loaded; --chat=off prevents this.\n", h.address(recipe.Loopback, pagePort))
	for {
		started := time.Now()
		err := h.chat(ctx, link)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) < stableRuntime {
			h.printf("The page has no chat: %v; to try again, stop this command, and run it again\n", err)
			return
		}
		h.printf("%v; it starts again after %v\n", err, restartPause)
		if pause.For(ctx, restartPause) != nil {
			return
		}
	}
}

// chat serves the model until ctx ends. It returns an error if the process ends before.
func (h *host) chat(ctx context.Context, link invite.Link) error {
	server := h.chatProcess(link)
	if err := server.Start(); err != nil {
		return err
	}
	select {
	case <-server.Ended():
	case <-ctx.Done():
		server.Stop(chatGrace)
		return nil
	}
	return fmt.Errorf("%s ended: %w: %s; its log is %s", server.Name, cause(server), server.LogTail(1), server.Log)
}

// chatProcess describes the server of the finished model. It gets the model by the link, so its digest is verified.
func (h *host) chatProcess(link invite.Link) *child.Process {
	return &child.Process{
		Name: "the model's server", Program: h.Client, Log: h.path("client", "chat.log"), OwnGroup: true,
		Args: []string{
			"serve-model", link.String(), "--name=" + h.Name, "--http-addr", h.address(recipe.Loopback, chatPort),
			"--max-running", "1", "--max-waiting", "2", "--max-time", "55s",
		},
		Env: append(h.clientEnv(), chatKey+"="+h.key),
	}
}

// newKey returns a random API key.
func newKey() string { return rand.Text() }

// sample writes texts of the first and of the finished model to a file, unless the file has them.
func (h *host) sample(ctx context.Context, link invite.Link, step uint32) error {
	path := h.path(samplesFile)
	if earlier, err := samples.Read(path); err == nil && len(earlier.Texts) > 0 && earlier.Texts[len(earlier.Texts)-1].Step == step {
		return nil
	}
	s := samples.Samples{RunID: h.Name, Prompt: h.prompt(ctx)}
	first := h.Model
	if h.creates() {
		first = h.path("model")
	}
	before, err := h.generate(ctx, s.Prompt, "--model", first)
	if err == nil {
		s.Texts = append(s.Texts, samples.Text{Step: 0, Text: before})
	}
	after, afterErr := h.generate(ctx, s.Prompt, link.String())
	if afterErr == nil {
		s.Texts = append(s.Texts, samples.Text{Step: step, Text: after})
	}
	if len(s.Texts) > 0 && ctx.Err() == nil {
		content, encodeErr := s.Encode()
		err = errors.Join(err, encodeErr, writeFile(path, content))
	}
	return errors.Join(err, afterErr)
}

// generate returns the continuation of a prompt.
func (h *host) generate(ctx context.Context, prompt string, model ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sampleTime, fmt.Errorf("no text within %v", sampleTime))
	defer cancel()
	args := append([]string{"generate"}, model...)
	args = append(args, "--prompt="+prompt, "--max-tokens", strconv.Itoa(sampleTokens), "--temperature", "0.8", "--seed", "1")
	out, err := child.Output(ctx, h.clientEnv(), h.Client, args...)
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimPrefix(string(out), prompt), "\n")
	return talk.Plain(text, samples.MaxText), nil
}

// prompt returns the first words of the held-out text, or a default.
func (h *host) prompt(ctx context.Context) string {
	text, err := h.heldOutText(ctx)
	if words := firstWords(text); err == nil && words != "" {
		return words
	}
	return defaultPrompt
}

// heldOutText decodes the first held-out tokens.
func (h *host) heldOutText(ctx context.Context) (string, error) {
	data, found, err := manifest.Read(h.path("data"))
	if err != nil || !found || len(data.HeldOut) == 0 {
		return "", err
	}
	file, err := os.Open(h.path("data", filepath.FromSlash(data.HeldOut[0].Name)))
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	raw := make([]byte, promptTokens*data.TokenSizeInBytes)
	n, err := file.ReadAt(raw, 0)
	if n == 0 {
		return "", err
	}
	coder, err := h.LoadTokenizer(ctx, h.Wanted.Tokenizer)
	if err != nil {
		return "", err
	}
	var ids []int32
	for at := 0; at+data.TokenSizeInBytes <= n; at += data.TokenSizeInBytes {
		if data.TokenSizeInBytes == 4 {
			ids = append(ids, int32(binary.LittleEndian.Uint32(raw[at:])))
		} else {
			ids = append(ids, int32(binary.LittleEndian.Uint16(raw[at:])))
		}
	}
	text, err := coder.DecodeSkipSpecial(ids)
	return string(text), err
}

// firstWords returns the first whole words of the first line with words, without control characters.
func firstWords(text string) string {
	text = strings.TrimLeftFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
	line, _, whole := strings.Cut(text, "\n")
	line = strings.TrimSuffix(line, "\r")
	line = talk.Plain(line, promptBytes+1)
	if len(line) > promptBytes || !whole {
		line = line[:max(0, strings.LastIndexFunc(line, unicode.IsSpace))]
	}
	if strings.ContainsRune(line, unicode.ReplacementChar) {
		return ""
	}
	return strings.TrimSpace(line)
}
