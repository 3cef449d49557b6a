package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/charmbracelet/x/term"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/face/qrcode"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/invite"
)

type runInvite struct {
	RunID        string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"The run."`
	PublicAddr   string `placeholder:"HOST[:PORT]" help:"Address by which others reach the server, in place of --server-addr."`
	QR           bool   `name:"qr" help:"Show the link as a QR code too, for a camera."`
	connectFlags `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runInvite) Help() string {
	return `Prints one line, by which others join:

  psyche-client join 'psyche://HOST:PORT/RUN?key=…&genesis=…'

It has the server's address, the key that the server proves, and the run's hash. Whoever gets it
by a way that they trust needs to trust nothing else. It is no secret, and admits nobody to a
run with --permissioned: that does psyche run authorize.`
}

// Run prints the link of a run.
func (c *runInvite) Run(ctx context.Context, to console) error {
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		return err
	}
	o, err := c.options(c.RunID, key, to.err)
	if err != nil {
		return err
	}
	link := invite.Link{RunID: c.RunID}
	if c.PublicAddr != "" {
		if link.Host, link.Port, err = invite.ParseAddress(c.PublicAddr); err != nil {
			return usagef("--public-addr: %w", err)
		}
	} else if link.Host, link.Port, err = invite.ParseAddress(c.ServerAddr); err != nil {
		return usagef("--server-addr: %w", err)
	}
	ctx, cancel := c.within(ctx, serverTimeout)
	defer cancel()
	server, err := tcp.Dial(ctx, o)
	if err != nil {
		return err
	}
	link.Key, link.Run = server.Host(), server.Run()
	if err := server.Close(); err != nil {
		return err
	}
	if err := link.Check(); err != nil {
		return fmt.Errorf("make a link: %w", err)
	}
	if ip := net.ParseIP(link.Host); link.Host == "localhost" || ip.IsLoopback() {
		_, _ = fmt.Fprintf(to.err, "psyche: %s is this machine only: for others give --public-addr, the name or address by which they reach it\n", link.Host)
	}
	if _, err = fmt.Fprintln(to.out, link); err != nil || !c.QR {
		return err
	}
	return printQR(to.out, link.String())
}

// printQR shows a text as a QR code, unless a terminal is too small for it.
func printQR(w io.Writer, text string) error {
	code, err := qrcode.Of(text)
	if err != nil {
		return err
	}
	terminal := isTerminal(w)
	if terminal {
		if width, _, err := term.GetSize(w.(*os.File).Fd()); err == nil && width < code.Size() {
			return fmt.Errorf("the QR code needs a terminal of %d columns, this one has %d: make it wider, or its text smaller", code.Size(), width)
		}
	}
	_, err = io.WriteString(w, code.Text(terminal && os.Getenv("NO_COLOR") == ""))
	return err
}
