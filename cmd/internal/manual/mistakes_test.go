package manual

import (
	"testing"

	"github.com/alecthomas/kong"
)

// TestExplain checks frequent mistakes: flags of other programs, commands of the other program, and a link as a command.
func TestExplain(t *testing.T) {
	var line struct {
		Solo struct {
			LR         float64 `aliases:"learning-rate"`
			TotalBatch int
			MicroBatch int
			Device     string
			Log        string
		} `cmd:""`
		Train struct {
			RunID          string `name:"run-id"`
			MicroBatchSize int
			ServerAddr     string
			Log            string
		} `cmd:""`
		Join struct {
			MicroBatchSize int
		} `cmd:""`
		Serve struct {
			ServerAddr, ServerPort string
			MainAuthority          string
			HTTPAddr               string `name:"http-addr"`
		} `cmd:""`
		Evaluate struct {
			Tasks string
		} `cmd:""`
		Dir struct {
			Dir string
		} `cmd:""`
	}
	parser, err := kong.New(&line, kong.Name("client"))
	if err != nil {
		t.Fatal(err)
	}
	other := Other{"server", []string{"host", "run"}}
	for _, c := range []struct {
		args         []string
		message, try string
	}{
		{[]string{"solo", "--batch-size", "3"}, "unknown flag --batch-size; use --total-batch or --micro-batch", "client solo --help"},
		{[]string{"solo", "--gpu"}, "unknown flag --gpu; use --device cuda", "client solo --help"},
		{[]string{"train", "--lr", "3"}, "unknown flag --lr; lr_schedule in the run's state.toml sets it for all members", "client train --help"},
		{[]string{"train", "--batch-size", "3"}, "unknown flag --batch-size; global_batch_size_start in the run's state.toml sets it for all members; this machine chooses only --micro-batch-size", "client train --help"},
		{[]string{"train", "--addr", "a:1"}, "unknown flag --addr; use --server-addr", "client train --help"},
		{[]string{"join", "--batch-size", "3"}, "unknown flag --batch-size; global_batch_size_start in the run's state.toml sets it for all members; this machine chooses only --micro-batch-size", "client join --help"},
		{[]string{"serve", "--port", "3"}, "unknown flag --port; use --server-port or --http-addr", "client serve --help"},
		{[]string{"serve", "--steps", "3"}, "unknown flag --steps; total_steps in the run's state.toml sets it for all members", "client serve --help"},
		{[]string{"evaluate", "--batch-size", "3"}, "unknown flag --batch-size", "client evaluate --help"},
		{[]string{"dir", "--addr", "a:1"}, `unknown flag --addr, did you mean "--dir"?`, "client dir --help"},
		{[]string{"host", "text"}, "host is a command of the program server, not of client", "server host --help"},
		{[]string{"psyche://host:1/run?key=a"}, "this is an invite link, not a command; psyche-client joins its run", "psyche-client join LINK"},
		{[]string{"psyche+solana://a/run"}, "this is an invite link, not a command; psyche-client joins its run", "psyche-client join LINK"},
		{[]string{"train", "psyche://host:1/run?key=a"}, "this command accepts no invite link; name the run with flags", "client train --help"},
		{[]string{"none"}, "unexpected argument none", "client --help"},
	} {
		_, err := parser.Parse(c.args)
		if err == nil {
			t.Fatalf("%q is understood", c.args)
		}
		if message, try := Explain("client", other, err); message != c.message || try != c.try {
			t.Errorf("%q: %q, %q, want %q, %q", c.args, message, try, c.message, c.try)
		}
	}
}
