package testnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/host/server"
)

// Chain puts the run on a chain on this machine instead of a server. The zero value means a server.
type Chain struct {
	Used   bool
	SlotMs int // duration of a slot in milliseconds

	Validator string // path of a real chain's program, solana-test-validator, instead of psyche chain start
}

// Amounts from the chain's faucet, in SOL.
const (
	authorityFunds = "5"
	clientFunds    = "1"
)

// authorityFile is the file name of the key that deploys the program and is the run's main
// authority.
const authorityFile = server.HostKeyFile

// File names for the saved chain.
const (
	chainLogFile    = "chain.log"
	archiveFile     = "run.archive"
	ledgerFile      = "chain.ledger"
	validatorLedger = "ledger" // a folder
)

// check rejects options that do not work on a chain.
func (c Chain) check(options Options) error {
	switch {
	case !c.Used:
		return nil
	case options.Faults.KillServerAtStep > 0 && c.Validator != "":
		return flagError("--kill-server-at-step: a validator starts a new ledger each time; omit --kill-server-at-step or --validator")
	case c.SlotMs < 20 || c.SlotMs > 10_000:
		return flagError("--slot-ms is %d: want 20 to 10000", c.SlotMs)
	}
	return nil
}

// chainProcess describes the chain's process, and returns the flags for clients to find the run on
// it.
func (n *network) chainProcess() (*child.Process, []string, error) {
	authority, err := identity.LoadKeyFile(n.authorityPath())
	if err != nil {
		return nil, nil, err
	}
	program, err := admin.ProgramOf(transaction.PublicKey(authority.ID()))
	if err != nil {
		return nil, nil, err
	}
	next := net.JoinHostPort("127.0.0.1", strconv.Itoa(n.options.ServerPort+1))
	flags := []string{"--rpc", "http://" + n.address, "--ws-rpc", "ws://" + next, "--program-id", program.String()}
	p := &child.Process{
		OwnGroup: true,
		Name:     "chain",
		Log:      filepath.Join(n.serverDir(), chainLogFile),
		Program:  n.options.ServerBinary,
		Args: []string{
			"chain", "start", "--listen", n.address, "--slot-ms", strconv.Itoa(n.options.Chain.SlotMs), "--ledger", n.ledgerPath(),
		},
	}
	if n.options.Chain.Validator != "" {
		faucet, err := child.FreePort()
		if err != nil {
			return nil, nil, err
		}
		p.Program = n.options.Chain.Validator
		p.Args = []string{
			"--ledger", filepath.Join(n.serverDir(), validatorLedger), "--reset", "--quiet", "--bind-address", "127.0.0.1",
			"--rpc-port", strconv.Itoa(n.options.ServerPort), "--faucet-port", strconv.Itoa(faucet),
		}
	}
	return p, flags, nil
}

// chainTimeout is the time limit for the chain to answer.
const chainTimeout = time.Minute

// awaitChain waits until the chain answers. A real chain listens before it is ready.
func (n *network) awaitChain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, chainTimeout, errors.New("the chain did not answer in time"))
	defer cancel()
	for {
		_, err := n.lamports(ctx)
		if err == nil {
			return nil
		}
		if err := pause.For(ctx, 200*time.Millisecond); err != nil {
			return errors.Join(fmt.Errorf("wait for the chain: %w: %s", err, n.server.LogTail(3)), err)
		}
	}
}

// byHandFile is the name of the file with the commands that restart a run on a validator.
const byHandFile = "by-hand.txt"

// noteCommands writes the commands for resuming the run manually. They restart the validator, which keeps
// its own ledger, restart the clients, and resume the run if it is paused.
func (n *network) noteCommands() error {
	var text strings.Builder
	line := func(env []string, command ...string) {
		if len(env) > 0 {
			env = append([]string{"env"}, env...)
		}
		for i, word := range slices.Concat(env, command) {
			if strings.ContainsAny(word, " \t\"'$\\") {
				word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
			}
			text.WriteString(strings.Repeat(" ", min(i, 1)) + word)
		}
		text.WriteString("\n")
	}
	for _, p := range append([]*child.Process{n.server}, n.clients...) {
		args := slices.DeleteFunc(slices.Clone(p.Args), func(arg string) bool { return arg == "--reset" })
		line(p.Env, append([]string{p.Program}, args...)...)
	}
	line(nil, slices.Concat([]string{n.options.ServerBinary, "run", "set-paused", "resume", "--run-id", n.run.RunID, "--keypair", n.authorityPath()}, n.hostFlags)...)
	return os.WriteFile(filepath.Join(n.dir, byHandFile), []byte(text.String()), 0o600)
}

func (n *network) ledgerPath() string { return filepath.Join(n.serverDir(), ledgerFile) }

func (n *network) authorityPath() string { return filepath.Join(n.serverDir(), authorityFile) }

// psyche runs a command of the psyche program.
func (n *network) psyche(ctx context.Context, args ...string) error {
	_, err := child.Output(ctx, nil, n.options.ServerBinary, args...)
	return err
}

// tell shows a remark at once.
func (n *network) tell(format string, args ...any) {
	n.progress.remark(format, args...)
	n.show(false)
}

// beginOnChain sets up a run on a chain, with the same commands as a user. A resumed run is already
// set up.
func (n *network) beginOnChain(ctx context.Context) error {
	if err := n.awaitChain(ctx); err != nil || n.resumed != nil {
		return err
	}
	key := []string{"--keypair", n.authorityPath()}
	rpc := n.hostFlags[:2]
	clients := []string{"chain", "airdrop", clientFunds}
	for _, id := range n.ids {
		clients = append(clients, id.String())
	}
	steps := []struct {
		done string
		args []string
	}{
		{"the faucet gave " + authorityFunds + " SOL to the authority", append(append([]string{"chain", "airdrop", authorityFunds}, key...), rpc...)},
		{"the faucet gave " + clientFunds + " SOL to each client", append(clients, rpc...)},
		{"the program is deployed", append(append([]string{"chain", "deploy", "--yes"}, key...), rpc...)},
		{"the run is created, paused", append(append([]string{
			"run", "create", "--state", filepath.Join(n.options.ConfigPath, stateFile), "--run-id", n.run.RunID, "--yes",
		}, key...), n.hostFlags...)},
		{"the run is started", append(append([]string{
			"run", "set-paused", "resume", "--run-id", n.run.RunID, "--commitment", "confirmed",
		}, key...), n.hostFlags...)},
	}
	for _, step := range steps {
		if err := n.psyche(ctx, step.args...); err != nil {
			return fmt.Errorf("%w (logs are in %s)", err, n.dir)
		}
		n.tell("%s", step.done)
	}
	return nil
}

// lamports returns the authority's balance.
func (n *network) lamports(ctx context.Context) (uint64, error) {
	out, err := child.Output(ctx, nil, n.options.ServerBinary, append([]string{"chain", "balance", n.authorityPath()}, n.hostFlags[:2]...)...)
	if err != nil {
		return 0, err
	}
	var key, amount, unit string
	if _, err := fmt.Sscan(string(out), &key, &amount, &unit); err != nil {
		return 0, fmt.Errorf("psyche chain balance printed %q: %w", out, err)
	}
	if amount == "0" {
		return 0, nil
	}
	return admin.ParseSOL(amount)
}

// ChainSummary is the cost of a run on a chain.
type ChainSummary struct {
	Archive      string  `json:"archive"`         // path of the run's archive, verified against the account's hash chain
	SetUp        uint64  `json:"set_up_lamports"` // paid by the authority: for the program, the run, and their deposits
	Transactions int     `json:"transactions"`    // of all clients
	Lamports     uint64  `json:"lamports"`        // paid for them
	PerRound     float64 `json:"transactions_per_client_round"`
	LamportRound float64 `json:"lamports_per_client_round"`
	Ticks        int     `json:"ticks"`         // transactions that contain only ticks
	OutOfTurn    int     `json:"out_of_turn"`   // tick transactions in another client's turn
	Rent         uint64  `json:"rent_lamports"` // deposits in the clients' accounts, which are returned
}

// addPaid adds the clients' payments to a summary.
func (t *tracker) addPaid(s *Summary, clientRounds uint64) {
	all := ChainSummary{}
	for i, id := range t.ids {
		paid := t.clients[id].total().paid
		s.Clients[i].Transactions, s.Clients[i].Lamports = paid.Transactions, paid.Lamports
		all.Transactions += paid.Transactions
		all.Ticks += paid.Ticks
		all.OutOfTurn += paid.OutOfTurn
		all.Lamports += paid.Lamports
		all.Rent += paid.Rent
	}
	if all.Transactions == 0 {
		return
	}
	if clientRounds > 0 {
		all.PerRound = float64(all.Transactions) / float64(clientRounds)
		all.LamportRound = float64(all.Lamports) / float64(clientRounds)
	}
	s.Chain = &all
}

// endOnChain records the authority's payments, and saves a verified archive of the run.
func (n *network) endOnChain(ctx context.Context) error {
	if !n.options.Chain.Used {
		return nil
	}
	left, err := n.lamports(ctx)
	if err != nil {
		return err
	}
	given, err := admin.ParseSOL(authorityFunds)
	if err != nil {
		return err
	}
	n.setUp = given - min(given, left)
	file := filepath.Join(n.serverDir(), archiveFile)
	if err := n.psyche(ctx, append([]string{
		"run", "archive", "--run-id", n.run.RunID, "--output", file, "--once", "--commitment", "confirmed",
	}, n.hostFlags...)...); err != nil {
		return err
	}
	if err := n.psyche(ctx, "run", "replay", file); err != nil {
		return err
	}
	n.archive = file
	return nil
}

// print writes the costs for people.
func (c *ChainSummary) print(w io.Writer, clients []ClientSummary) {
	fmt.Fprintf(w, "  on the chain       %d transactions for %s SOL: %.2f and %.9f SOL per client and round\n",
		c.Transactions, admin.SOL(c.Lamports), c.PerRound, c.LamportRound/admin.LamportsPerSOL)
	fmt.Fprintf(w, "    ticks            %d, %d of them out of turn\n", c.Ticks, c.OutOfTurn)
	if c.Archive == "" {
		fmt.Fprintf(w, "    archive          none: the run is not finished; %s SOL in the clients' accounts are recoverable\n", admin.SOL(c.Rent))
	} else {
		fmt.Fprintf(w, "    set-up           %s SOL for the program and the run; %s SOL in the clients' accounts are recoverable\n", admin.SOL(c.SetUp), admin.SOL(c.Rent))
		fmt.Fprintf(w, "    archive          %s, verified\n", c.Archive)
	}
	for i, client := range clients {
		fmt.Fprintf(w, "    client-%d         %d transactions, %s SOL, %.2f transactions a round\n", i+1, client.Transactions,
			admin.SOL(client.Lamports), float64(client.Transactions)/float64(max(client.RoundsTrained, 1)))
	}
}
