package main

import (
	"context"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
)

// chainDeploy deploys the program on a chain.
type chainDeploy struct {
	nodeFlags  `embed:""`
	signFlags  `embed:""`
	agreeFlags `embed:""`
	Final      bool `help:"Permanently give up the right to change the program."`
}

// nodeFlags select the nodes of a chain.
type nodeFlags struct {
	onchain.Flags `embed:""`
	Timeout       time.Duration `default:"10m" help:"Give up after this time (${default})."`
}

// Help returns the text below the command's summary in --help.
func (c *chainDeploy) Help() string {
	return `Deploys the program that is built into this executable: chain/program/psyche.so of the sources. Its
address follows from the signing key, and this key can change the program later. To continue an
interrupted deployment, run the command again; you do not pay twice for parts that exist.`
}

// open opens the chain for the signing key.
func (c *chainDeploy) open(to console) (*admin.Chain, error) {
	if c.ProgramID != "" {
		return nil, usagef("--program-id: the address follows from the signing key: omit the flag")
	}
	key, err := c.key(true)
	if err != nil {
		return nil, err
	}
	o, err := c.Options(key, warnings(to.err))
	if err != nil {
		return nil, usageError{err}
	}
	return admin.Open(o)
}

// Run deploys the program.
func (c *chainDeploy) Run(ctx context.Context, to console) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	chain, err := c.open(to)
	if err != nil {
		return err
	}
	defer chain.Close()
	cluster, err := chain.Cluster(ctx)
	if err != nil {
		return err
	}
	plan, err := chain.PlanDeploy(ctx, program.ELF)
	if err != nil {
		return err
	}
	if plan.Done() {
		if _, err := fmt.Fprintf(to.out, "%s\nthe program is already at this address, on %s\n", plan.Program, cluster); err != nil {
			return err
		}
		return c.finalize(ctx, to, chain)
	}
	if err := chain.Need(ctx, plan.Cost); err != nil {
		return err
	}
	subject := "the program, on " + cluster + ","
	if plan.Upgrade {
		subject = "a new version of " + subject
	}
	if err := c.agree(to, subject, plan.Cost); err != nil {
		return err
	}
	written, shown := 0, time.Now()
	err = chain.Deploy(ctx, plan, func() {
		if written++; time.Since(shown) >= time.Second || written == plan.Pieces() {
			shown = time.Now()
			_, _ = fmt.Fprintf(to.err, "psyche: wrote %d of %d pieces\n", written, plan.Pieces())
		}
	})
	if err != nil {
		return fmt.Errorf("deploy: %w; run the same command again to continue", err)
	}
	_, err = fmt.Fprintf(to.out, "%s\nthe program is at this address, on %s: give it as --program-id, or as PSYCHE_PROGRAM_ID\n", plan.Program, cluster)
	if err != nil {
		return err
	}
	return c.finalize(ctx, to, chain)
}

// finalize makes the program immutable, if requested.
func (c *chainDeploy) finalize(ctx context.Context, to console, chain *admin.Chain) error {
	if !c.Final {
		return nil
	}
	if err := c.agree(to, "making the program permanently unchangeable", admin.Transactions(1)); err != nil {
		return err
	}
	if err := chain.Finalize(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintln(to.out, "the program can no longer be changed")
	return err
}

// chainAirdrop requests SOL from a faucet.
type chainAirdrop struct {
	Amount    string   `arg:"" help:"Amount of SOL."`
	Keys      []string `arg:"" name:"key" optional:"" help:"Keys that receive SOL, in base58 or as key files. Default: the key of --keypair."`
	nodeFlags `embed:""`
	signFlags `embed:""`
}

// Run requests the SOL, and waits until it arrives.
func (c *chainAirdrop) Run(ctx context.Context, to console) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	lamports, err := admin.ParseSOL(c.Amount)
	if err != nil {
		return usageError{err}
	}
	return c.each(to, &c.Flags, c.Keys, func(chain *admin.Chain, key transaction.PublicKey) error {
		if err := chain.Airdrop(ctx, key, lamports); err != nil {
			return err
		}
		return printBalance(ctx, to, chain, key)
	})
}

// chainBalance shows the balances of keys.
type chainBalance struct {
	Keys      []string `arg:"" name:"key" optional:"" help:"Keys in base58, or key files. Default: the key of --keypair."`
	nodeFlags `embed:""`
	signFlags `embed:""`
}

// Run prints a balance for each key.
func (c *chainBalance) Run(ctx context.Context, to console) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return c.each(to, &c.Flags, c.Keys, func(chain *admin.Chain, key transaction.PublicKey) error {
		return printBalance(ctx, to, chain, key)
	})
}

func printBalance(ctx context.Context, to console, chain *admin.Chain, key transaction.PublicKey) error {
	lamports, err := chain.Balance(ctx, key)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "%s %s SOL\n", key, admin.SOL(lamports))
	return err
}

// each opens a chain and calls do for each account; see accounts.
func (f signFlags) each(to console, flags *onchain.Flags, texts []string, do func(*admin.Chain, transaction.PublicKey) error) error {
	keys, err := f.accounts(texts)
	if err != nil {
		return err
	}
	chain, _, err := openToLook(flags, to)
	if err != nil {
		return err
	}
	defer chain.Close()
	for _, key := range keys {
		if err := do(chain, key); err != nil {
			return err
		}
	}
	return nil
}

// accounts parses keys, or returns the key of --keypair if there are none.
func (f signFlags) accounts(texts []string) ([]transaction.PublicKey, error) {
	if len(texts) == 0 {
		key, err := f.key(true)
		if err != nil {
			return nil, err
		}
		return []transaction.PublicKey{transaction.PublicKey(key.ID())}, nil
	}
	var keys []transaction.PublicKey
	for _, text := range texts {
		id, err := keyOrFile(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, transaction.PublicKey(id))
	}
	return keys, nil
}

// keyOrFile parses a base58 key, or reads the id of a key file.
func keyOrFile(text string) (identity.ID, error) {
	id, err := identity.ParseID(text)
	if err == nil {
		return id, nil
	}
	key, fileErr := identity.LoadKeyFile(text)
	if fileErr != nil {
		return id, usagef("%q is neither a key in base58 nor a key file: %w; %w", text, err, fileErr)
	}
	return key.ID(), nil
}
