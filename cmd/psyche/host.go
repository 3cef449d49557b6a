package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
	"github.com/psyche-go/psyche/cmd/internal/paths"
	"github.com/psyche-go/psyche/face/hosting"
	"github.com/psyche-go/psyche/files/recipe"
)

// hostText hosts a run on a user's own text.
type hostText struct {
	Texts     []string `arg:"" name:"text" placeholder:"TEXT" help:"Your text: folders, files, or data sets of the Hugging Face Hub (hf://datasets/OWNER/NAME). data tokenize lists the formats."`
	Friends   *int     `placeholder:"N" help:"Number of machines that you expect in addition to this machine. Default: 3, or 23 with --open." group:"The run:"`
	Link      string   `default:"20mbit" placeholder:"SPEED" help:"Upload speed of the machines, such as 100mbit, 5mbit or 1gbit (${default})." group:"The run:"`
	Hours     float64  `default:"1" placeholder:"N" help:"Duration of the run in hours, if all machines are as fast as this machine (${default})." group:"The run:"`
	Open      bool     `help:"Strangers may take part: members audit each other's results, and eject members whose results are false. Needs at least 8 members." group:"The run:"`
	Model     string   `default:"small" placeholder:"MODEL" help:"First model: small (2.3 M parameters) or medium (20.6 M parameters) with random weights, a model folder in Hugging Face format, or OWNER/NAME on the Hugging Face Hub (${default})." group:"The run:"`
	Tokenizer string   `placeholder:"FILE" help:"Tokenizer, as for data tokenize. Default: the tokenizer of --model, or a tokenizer.json or tokenizer.model next to TEXT, or bytes." group:"The run:"`
	Name      string   `placeholder:"NAME" help:"Name of the run, up to 64 bytes. Default: the name of the first TEXT." group:"The run:"`

	MainAuthority string `placeholder:"KEY" help:"Key, in base58, that pauses, changes and closes the run, and ejects members. Default: the host's own key." group:"The run:"`

	PublicAddr string `placeholder:"HOST" help:"Name or address at which other machines reach this machine. Default: an address of this machine. 127.0.0.1 limits the run to this machine." group:"Connections:"`
	InstallURL string `name:"install-url" env:"PSYCHE_RELEASES" placeholder:"URL" help:"Folder with the install.sh of a release, for friends without psyche-client. The command then prints the line that installs it. Default: none." group:"Connections:"`
	MinClient  string `name:"min-client-version" placeholder:"VERSION" help:"Oldest version of psyche-client that may take part, such as 0.2.0. Older clients end, and name the version that they need. Default: all versions." group:"Connections:"`
	Chat       string `enum:"auto,on,off" default:"auto" placeholder:"auto|on|off" help:"A chat on the page of the finished run. The model stays in the memory of this machine until Ctrl-C. auto means on, but off with --open: the pages of open runs are often public (${default})." group:"Connections:"`
	Port       uint16 `default:"0" placeholder:"PORT" help:"First of five consecutive ports: for the run, the page, the data, this machine's results, and the chat. The page and the chat are on this machine only. 0 means 39405, or a later port if these are in use (${default})." group:"Connections:"`

	Dir         string `type:"path" placeholder:"DIR" help:"Folder for the files of the run. Default: psyche/hosted/NAME in XDG_STATE_HOME or in ~/.local/state." group:"Files and programs:"`
	PrepareOnly bool   `help:"Write the files of the run, but start nothing." group:"Files and programs:"`
	Again       bool   `help:"Begin a new run, and rename the folder of an earlier run to DIR.old-1 or the next free number." group:"Files and programs:"`
	Client      string `type:"path" placeholder:"FILE" help:"The psyche-client program. Default: psyche-client in the folder of this program." group:"Files and programs:"`
}

// Help returns the text below the command's summary in --help.
func (c *hostText) Help() string {
	return `Tokenizes the text, holds out 1 % of it, creates the model, and writes state.toml, with the reason for
each value. Then starts the server, a client on this machine and a page, and prints the command with which
your friends join. This machine begins to train alone, and friends join at the next epoch; with --open,
training begins when enough members have joined.

Ctrl-C stops the run. The same command continues it, also after a crash. Until the run begins, you can edit
state.toml, or change flags or texts: the command then repeats the affected steps. Later, other flags are an
error, and changed texts have no effect; --again begins a new run.`
}

// Run hosts the run until a signal arrives.
func (c *hostText) Run(ctx context.Context, to console) error {
	var link recipe.Mbits
	if err := link.UnmarshalText([]byte(c.Link)); err != nil {
		return usagef("--link: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	friends := hosting.UsualFriends
	if c.Friends != nil {
		if friends = *c.Friends; friends < 0 {
			return usagef("--friends %d, want 0 to %d", friends, recipe.MaxFriends)
		}
	}
	if c.MainAuthority != "" {
		if _, err := identity.ParseID(c.MainAuthority); err != nil {
			return usagef("--main-authority: %w", err)
		}
	}
	if err := (release.Requirement{Version: c.MinClient}).Admit(buildinfo.Version()); err != nil {
		return usagef("--min-client-version %s is newer than this program (%s), so the client of this machine could not take part", c.MinClient, buildinfo.Version())
	}
	client := c.Client
	if client == "" {
		client = filepath.Join(filepath.Dir(self), "psyche-client")
	}
	err = hosting.Run(ctx, hosting.Options{
		Texts: c.Texts, Dir: c.Dir, Name: c.Name, Friends: friends, Link: link, Hours: c.Hours, Open: c.Open,
		Model: c.Model, Tokenizer: c.Tokenizer, Authority: c.MainAuthority, PublicAddr: c.PublicAddr, InstallURL: c.InstallURL, MinClient: c.MinClient, Port: c.Port,
		Chat:        c.Chat == "on" || c.Chat == "auto" && !c.Open,
		PrepareOnly: c.PrepareOnly, Again: c.Again, Server: self, Client: client, Caller: caller(ctx, to),
	})
	switch {
	case errors.Is(err, hosting.ErrOptions), errors.Is(err, recipe.ErrRequest):
		return usageError{err}
	case errors.Is(err, hosting.ErrState):
		return configError{err}
	}
	return err
}

// caller returns the functions of this program that hosting uses.
func caller(ctx context.Context, to console) hosting.Caller {
	return hosting.Caller{
		Local: func(ctx context.Context, paths []string) ([]string, error) {
			return dataTokenize{Paths: paths, Split: "train"}.localPaths(ctx, to)
		},
		LoadTokenizer: loadTokenizer,
		StateFolder:   func() (string, error) { return paths.State(os.LookupEnv) },
		OwnAddress:    func() string { return ownAddress(net.InterfaceAddrs) },
		Serving:       func() { signals.Hold(ctx) },
		ShowQR:        func(text string) error { return printQR(to.out, text) },
		Out:           to.out,
		Err:           to.err,
	}
}
