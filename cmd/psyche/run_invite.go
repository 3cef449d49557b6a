package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/charmbracelet/x/term"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/face/qrcode"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/invite"
)

type runInvite struct {
	RunID      string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"The run."`
	PublicAddr string `placeholder:"HOST[:PORT]" help:"Address by which others reach the server, in place of --server-addr."`
	QR         bool   `name:"qr" help:"Show the link as a QR code too, for a camera."`
	hostFlags  `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *runInvite) Help() string {
	return `Prints one line, by which others join:

  psyche-client join 'psyche://HOST:PORT/RUN?key=…&genesis=…'

or, of a run on a chain (--rpc),

  psyche-client join 'psyche+solana://PROGRAM/RUN?authority=…&rpc=…'

It has the server's address, the key that the server proves, and the run's hash; on a
chain, the program, the run's main authority, which together name its account, and the nodes of --rpc. Whoever gets it
by a way that they trust needs to trust nothing else. It is no secret, and admits nobody to a
run with --permissioned: that does psyche run authorize.`
}

// Run prints the link of a run.
func (c *runInvite) Run(ctx context.Context, to console) error {
	isChain, err := c.onChain()
	if err != nil {
		return err
	}
	if isChain {
		return c.inviteToChain(ctx, to)
	}
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
	if isOwn(link.Host) {
		_, _ = fmt.Fprintf(to.err, "psyche: %s is this machine only: for others give --public-addr, the name or address by which they reach it\n", link.Host)
	}
	return c.print(to.out, link.String())
}

// isOwn reports whether a host is this machine, for everybody.
func isOwn(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

func (c *runInvite) print(w io.Writer, link string) error {
	if _, err := fmt.Fprintln(w, link); err != nil || !c.QR {
		return err
	}
	return printQR(w, link)
}

// inviteToChain prints the link of a run on a chain.
func (c *runInvite) inviteToChain(ctx context.Context, to console) error {
	switch {
	case c.PublicAddr != "":
		return usagef("--public-addr is of a run on a server; the nodes by which others reach a chain are those of --rpc")
	case len(c.WsRPC) > 0:
		return usagef("a link has no --ws-rpc: leave it out, if the nodes have their WebSockets at the addresses of --rpc; else others join with psyche-client train and the same flags")
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	chain, program, err := openToLook(&c.Flags, to)
	if err != nil {
		return err
	}
	defer chain.Close()
	var authority transaction.PublicKey
	if c.Authority != "" {
		if authority, err = transaction.ParsePublicKey(c.Authority); err != nil {
			return usagef("--authority: %w", err)
		}
	}
	run, err := chain.Find(ctx, program, c.RunID, authority)
	if err != nil {
		return err
	}
	summary, err := chain.Summary(ctx, run, "confirmed")
	if err != nil {
		return err
	}
	link := invite.ChainLink{Program: identity.ID(program), RunID: c.RunID, Authority: identity.ID(summary.Main), RPC: c.RPC}
	if at, err := chain.Find(ctx, program, c.RunID, transaction.PublicKey(link.Authority)); err != nil || at != run {
		return errors.Join(fmt.Errorf("the run at %s is not where its main authority %s began one: others join with psyche-client train", run, link.Authority), err)
	}
	if err := link.Check(); err != nil {
		return fmt.Errorf("make a link: %w", err)
	}
	for _, address := range c.RPC {
		at, err := url.Parse(address)
		switch {
		case err != nil:
		case isOwn(at.Hostname()):
			_, _ = fmt.Fprintf(to.err, "psyche: %s is this machine only: for others name nodes with --rpc that they reach\n", at.Host)
		case strings.Trim(at.Path, "/") != "" || at.RawQuery != "":
			_, _ = fmt.Fprintf(to.err, "psyche: the link has the whole address of the node at %s: if it has a key of yours in it, everybody who gets the link has that, too\n", at.Host)
		}
	}
	return c.print(to.out, link.String())
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
