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
	RunID      string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"Name of the run."`
	PublicAddr string `placeholder:"HOST[:PORT]" help:"Address at which clients reach the server, instead of --server-addr."`
	QR         bool   `name:"qr" help:"Also show the link as a QR code."`
	hostFlags  `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runInvite) Help() string {
	return `Prints one command line for joining the run:

  psyche-client join 'psyche://HOST:PORT/RUN?key=…&genesis=…'

or, for a run on a chain (--rpc),

  psyche-client join 'psyche+solana://PROGRAM/RUN?authority=…&rpc=…'

The link contains the server's address, the server's key, and the run's hash. On a chain, it contains
the program and the run's main authority, which together name its account, and the nodes of --rpc.
A recipient who gets the link over a trusted channel needs to trust nothing else. The link is not
secret. It does not admit a key to a run with --permissioned; psyche run authorize does.`
}

// Run prints the invite link of a run.
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
		_, _ = fmt.Fprintf(to.err, "psyche: other machines cannot reach %s: pass the public name or address with --public-addr\n", link.Host)
	}
	return c.print(to.out, link.String())
}

// isOwn reports whether a host name always means the local machine.
func isOwn(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

func (c *runInvite) print(w io.Writer, link string) error {
	if _, err := fmt.Fprintln(w, link); err != nil || !c.QR {
		return err
	}
	return printQR(w, link)
}

// inviteToChain prints the invite link of a run on a chain.
func (c *runInvite) inviteToChain(ctx context.Context, to console) error {
	switch {
	case c.PublicAddr != "":
		return usagef("--public-addr applies to a run on a server only; the link to a run on a chain contains the nodes of --rpc")
	case len(c.WsRPC) > 0:
		return usagef("a link cannot contain --ws-rpc: omit it if the nodes serve WebSockets at the addresses of --rpc; otherwise, clients join with psyche-client train and the same flags")
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
		return errors.Join(fmt.Errorf("the run's account %s does not follow from its main authority %s: clients join with psyche-client train instead of a link", run, link.Authority), err)
	}
	if err := link.Check(); err != nil {
		return fmt.Errorf("make a link: %w", err)
	}
	for _, address := range c.RPC {
		at, err := url.Parse(address)
		switch {
		case err != nil:
		case isOwn(at.Hostname()):
			_, _ = fmt.Fprintf(to.err, "psyche: other machines cannot reach %s: pass public nodes with --rpc\n", at.Host)
		case strings.Trim(at.Path, "/") != "" || at.RawQuery != "":
			_, _ = fmt.Fprintf(to.err, "psyche: the link contains the full address of the node at %s: if the address includes your API key, every recipient of the link gets that key\n", at.Host)
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
			return fmt.Errorf("the QR code needs %d columns, but the terminal has %d: widen the terminal or reduce its font size", code.Size(), width)
		}
	}
	_, err = io.WriteString(w, code.Text(terminal && os.Getenv("NO_COLOR") == ""))
	return err
}
