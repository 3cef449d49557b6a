package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lmittmann/tint"

	"github.com/psyche-go/psyche/base/secret"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/face/openai"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/generate"
	"github.com/psyche-go/psyche/record/invite"
)

// apiKeyVariable is the environment variable with the API key, for use in a service.
const apiKeyVariable = "PSYCHE_API_KEY"

type serveModelCommand struct {
	usedModel      `embed:""`
	Name           string        `placeholder:"NAME" group:"The model:" help:"Model name in requests. Default: OWNER/NAME, the folder's name, or the name of the link's run."`
	ChatTemplate   string        `type:"existingfile" placeholder:"FILE" group:"The model:" help:"Jinja chat template to use instead of the model's own."`
	HTTPAddr       string        `name:"http-addr" default:"127.0.0.1:8000" placeholder:"HOST:PORT" group:"Requests:" help:"Address to serve on (${default}). Port 0 picks a free port."`
	APIKeyFile     string        `name:"api-key-file" type:"existingfile" placeholder:"FILE" group:"Requests:" help:"File with the API key that requests must send as Authorization: Bearer KEY. Default: PSYCHE_API_KEY. Without a key, the server answers every client that can reach the address."`
	MaxRunning     int           `default:"4" placeholder:"N" group:"Requests:" help:"Requests generated concurrently, in one batch (${default}). Each has its own KV cache."`
	MaxWaiting     int           `default:"16" placeholder:"N" group:"Requests:" help:"Maximum number of waiting requests (${default}). Further requests are refused with status 429."`
	MaxTime        time.Duration `default:"10m" placeholder:"DURATION" group:"Requests:" help:"Time limit of a request, including its wait (${default}). After this time, the answer is cut off."`
	Threads        threadCount   `placeholder:"N" help:"Threads of libtorch. 0 uses OMP_NUM_THREADS, or else one thread per CPU."`
	libraryFlags   `embed:""`
	inferenceFlags `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *serveModelCommand) Help() string {
	return `Answers POST /v1/chat/completions and /v1/completions, whole or streamed, and GET /v1/models and
/healthz, in the format of OpenAI's API, until it is interrupted. Chats need a template: the model's
own template or --chat-template. The template also determines whether requests may have tools. The
server refuses a request with an unknown field that would change the answer, and names the field. It
also refuses messages that contain control tokens of the model.

Concurrent answers are computed together: a pass through the model generates a token of each answer.
The command is meant for talking to a checkpoint, not for serving many users. vLLM loads the same
folder: vllm serve MODEL --dtype float32.

With the invite link of a run, serves the newest model that the run recorded, as generate uses it.`
}

// Run serves until ctx ends.
func (c *serveModelCommand) Run(ctx context.Context, t terminal) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	s, err := c.read(ctx, t)
	if err != nil {
		return err
	}
	served, err := c.served(s)
	if err != nil {
		return err
	}
	if err := c.load(c.Threads, t.logger()); err != nil {
		return err
	}
	network, err := c.network(ctx, t, s)
	if err != nil {
		return err
	}
	defer func() { _ = network.Engine().Close() }()
	served.Context, served.Vocab, served.Tokens = network.MaxTokens(), network.VocabSize(), c.writer(network, served)
	logger := slog.New(tint.NewTextHandler(t.Err, &tint.Options{TimeFormat: time.TimeOnly, NoColor: true}))
	server, err := openai.New(served, openai.Limits{Running: c.MaxRunning, Waiting: c.MaxWaiting, Time: c.MaxTime}, key, logger)
	if err != nil {
		return usageError{fmt.Errorf("--max-running, --max-waiting, --max-time: %w", err)}
	}
	listener, err := c.listen(ctx, key != "", logger)
	if err != nil {
		return err
	}
	if served.Template == nil {
		logger.Warn("chats are not available, only /v1/completions", "because", served.NoTemplate)
	}
	if _, err := fmt.Fprintf(t.Err, "psyche-client: %s answers at http://%s/v1\n", served.Name, listener.Addr()); err != nil {
		return errors.Join(err, listener.Close())
	}
	signals.Hold(ctx) // running answers may complete
	return server.Serve(ctx, listener)
}

// served describes the model, except the parts that need libtorch.
func (c *serveModelCommand) served(s checkpoint.Snapshot) (m openai.Model, err error) {
	m.Name = c.Name
	if link, err := invite.Parse(c.Link); err == nil && m.Name == "" {
		m.Name = link.RunID
	}
	if m.Name == "" {
		m.Name = c.Model
		if info, err := os.Stat(c.Model); err == nil && info.IsDir() {
			path, err := filepath.Abs(c.Model)
			if err != nil {
				return m, err
			}
			m.Name = filepath.Base(path)
		}
	}
	if m.Tokenizer, err = readTokenizer(c.Model, s); err != nil {
		return m, err
	}
	if m.Ends, err = generate.EndTokens(s); err != nil {
		return m, fmt.Errorf("%s: %w", c.Model, err)
	}
	file := s.File
	if c.ChatTemplate != "" {
		text, err := os.ReadFile(c.ChatTemplate)
		if err != nil {
			return m, fmt.Errorf("--chat-template: %w", err)
		}
		file = func(name string) ([]byte, bool) {
			if name == "chat_template.jinja" {
				return text, true
			}
			return s.File(name)
		}
	}
	m.Template, m.Named, err = chat.Load(file)
	if err != nil && c.ChatTemplate != "" {
		return m, fmt.Errorf("--chat-template %s: %w", c.ChatTemplate, err)
	}
	if err != nil {
		m.Template, m.NoTemplate = nil, err
	}
	return m, nil
}

// writer returns a function that generates text for a server, several texts concurrently.
func (c *serveModelCommand) writer(network model.Model, served openai.Model) func(context.Context, []int32, openai.Options, func(int32) error) error {
	together := generate.NewTogether(network)
	return func(ctx context.Context, prompt []int32, o openai.Options, emit func(int32) error) error {
		return together.Tokens(ctx, prompt, generate.Options{
			MaxTokens: o.MaxTokens, Temperature: o.Temperature, TopP: o.TopP, Seed: o.Seed,
			RepetitionPenalty: 1, Stop: served.Ends, Vocab: served.Tokenizer.VocabSize(), Observe: o.Observe,
		}, emit)
	}
}

// listen opens the address, and warns if other machines can reach it.
func (c *serveModelCommand) listen(ctx context.Context, locked bool, logger *slog.Logger) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", c.HTTPAddr)
	if err != nil {
		return nil, fmt.Errorf("--http-addr: %w", err)
	}
	if at, ok := listener.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		logger.Warn("other machines can reach this address without encryption; put a TLS server in front of it", "address", listener.Addr(), "needs_a_key", locked)
	}
	return listener, nil
}

// key returns the API key, or "" if there is none.
func (c *serveModelCommand) key() (string, error) {
	const most = 4096 // bytes
	text, set := []byte(os.Getenv(apiKeyVariable)), os.Getenv(apiKeyVariable) != ""
	from := apiKeyVariable
	if c.APIKeyFile != "" {
		from, set = "--api-key-file "+c.APIKeyFile, true
		file, err := os.Open(c.APIKeyFile)
		if err != nil {
			return "", fmt.Errorf("--api-key-file: %w", err)
		}
		defer func() { _ = file.Close() }()
		if text, err = io.ReadAll(io.LimitReader(file, most+1)); err != nil {
			return "", fmt.Errorf("--api-key-file: %w", err)
		}
	}
	key := secret.Trim(string(text))
	if set && (key == "" || len(key) > most || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })) {
		return "", usageError{fmt.Errorf("%s: want one line of 1 to %d ASCII characters without spaces", from, most)}
	}
	return key, nil
}
