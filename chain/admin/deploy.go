package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
)

// programSeed derives the program's address from the deployer's key. Each key can deploy one
// program.
const programSeed = "psyche"

// programRoom is the number of extra bytes in a program's account, for later images.
const programRoom = 8 << 10

// Kinds of accounts of the loader, stored in their first four bytes.
const (
	isBuffer      = 1
	isProgram     = 2
	isProgramData = 3
)

// Compute limits of the loader's transactions.
const (
	writeUnits  = 10_000
	deployUnits = 200_000
	createUnits = 20_000
)

// Deployment is a plan for the remaining steps to deploy a program.
type Deployment struct {
	Program transaction.PublicKey
	Cost    Cost // of the remaining steps; zero if there are none
	Upgrade bool // replaces an existing image

	buffer transaction.PublicKey
	seed   string // of buffer
	image  []byte
	begun  bool     // the buffer exists
	pieces []uint32 // offsets of the missing pieces
	done   bool
	rent   struct{ buffer, program uint64 }
}

// Done reports whether the program is already deployed.
func (d *Deployment) Done() bool { return d.done }

// Pieces returns the number of pieces of the image that remain to be written.
func (d *Deployment) Pieces() int { return len(d.pieces) }

// ProgramOf returns the address of the program that a key deploys.
func ProgramOf(deployer transaction.PublicKey) (transaction.PublicKey, error) {
	return transaction.CreateWithSeed(deployer, programSeed, transaction.LoaderProgram)
}

// PlanDeploy plans the deployment of an image. It skips parts that are already on the chain.
func (c *Chain) PlanDeploy(ctx context.Context, image []byte) (*Deployment, error) {
	payer := c.Payer()
	sum := sha256.Sum256(image)
	d := &Deployment{image: image, seed: "buffer-" + hex.EncodeToString(sum[:8])}
	var err error
	if d.Program, err = ProgramOf(payer); err != nil {
		return nil, err
	}
	if d.buffer, err = transaction.CreateWithSeed(payer, d.seed, transaction.LoaderProgram); err != nil {
		return nil, err
	}
	if err := c.planProgram(ctx, d); err != nil || d.done {
		return d, err
	}
	if err := c.planBuffer(ctx, d); err != nil {
		return nil, err
	}
	d.Cost = Cost{Rent: d.Cost.Rent + d.rent.program, Fees: d.Cost.Fees}
	n := len(d.pieces) + 1
	if !d.begun {
		n++
	}
	d.Cost.Fees, d.Cost.Transactions = uint64(n)*transaction.SignatureFee, n
	return d, nil
}

// planProgram checks whether a program exists, and which image it has.
func (c *Chain) planProgram(ctx context.Context, d *Deployment) error {
	found, err := c.account(ctx, d.Program, nil, rpc.Confirmed)
	if err != nil {
		return err
	}
	if isUnused(found) {
		rent, err := c.rent(ctx, transaction.ProgramSize)
		d.rent.program = missing(rent, found)
		return errors.Join(err, c.checkProgramData(ctx, d.Program))
	}
	if found.Owner != transaction.LoaderProgram || len(found.Data) < transaction.ProgramSize || binary.LittleEndian.Uint32(found.Data) != isProgram {
		return fmt.Errorf("%w: %s is not a program; deploy with another key", ErrTaken, d.Program)
	}
	image, authority, err := c.image(ctx, d.Program)
	if err != nil {
		return err
	}
	d.Upgrade = true
	d.done = sameImage(image, d.image)
	switch {
	case d.done:
		return nil
	case authority == transaction.PublicKey{}:
		return fmt.Errorf("%w: another image is at %s, and the program is final: no key can change it; deploy with another key", ErrTaken, d.Program)
	case authority != c.Payer():
		return fmt.Errorf("%w: another image is at %s, and this key cannot change it: the authority is %s", ErrTaken, d.Program, authority)
	case len(image) < len(d.image):
		return fmt.Errorf("%w: the program's account has room for %d bytes, the new image has %d: deploy it with another key", ErrTaken, len(image), len(d.image))
	}
	return nil
}

// checkProgramData returns an error if the address of a program's image is in use. The loader fails
// if the address holds lamports, and they cannot be removed.
func (c *Chain) checkProgramData(ctx context.Context, program transaction.PublicKey) error {
	at, err := transaction.ProgramData(program)
	if err != nil {
		return err
	}
	found, err := c.account(ctx, at, &rpc.Slice{Length: 0}, rpc.Confirmed)
	if err == nil && found != nil {
		return fmt.Errorf("%w: %d lamports were sent to %s, so the chain's loader refuses to store the program's image there; deploy with another key", ErrTaken, found.Lamports, at)
	}
	return err
}

// isUnused reports whether an address is empty or holds only lamports.
func isUnused(found *rpc.Account) bool {
	return found == nil || found.Owner == transaction.SystemProgram && len(found.Data) == 0
}

// image returns a program's image, including the bytes after it, and its upgrade authority, which
// is zero for an immutable program.
func (c *Chain) image(ctx context.Context, program transaction.PublicKey) ([]byte, transaction.PublicKey, error) {
	var authority transaction.PublicKey
	at, err := transaction.ProgramData(program)
	if err != nil {
		return nil, authority, err
	}
	found, err := c.account(ctx, at, nil, rpc.Confirmed)
	switch {
	case err != nil:
		return nil, authority, err
	case found == nil || len(found.Data) < transaction.ProgramDataHeader || binary.LittleEndian.Uint32(found.Data) != isProgramData:
		return nil, authority, fmt.Errorf("%w: %s has no image", ErrNoProgram, program)
	}
	const authorityAt = 12
	if found.Data[authorityAt] == 1 {
		authority = transaction.PublicKey(found.Data[authorityAt+1:])
	}
	return found.Data[transaction.ProgramDataHeader:], authority, nil
}

// planBuffer finds the pieces of the image that are not in the buffer yet.
func (c *Chain) planBuffer(ctx context.Context, d *Deployment) error {
	size := transaction.BufferHeader + len(d.image)
	found, err := c.account(ctx, d.buffer, nil, rpc.Confirmed)
	if err != nil {
		return err
	}
	if d.rent.buffer, err = c.rent(ctx, size); err != nil {
		return err
	}
	data, err := c.rent(ctx, transaction.ProgramDataHeader+len(d.image)+programRoom)
	if err != nil {
		return err
	}
	if !d.Upgrade {
		d.Cost.Rent = data
	}
	if found != nil {
		d.Cost.Rent -= min(d.Cost.Rent, found.Lamports) // the loader moves these lamports to the program's data account
	}
	if !isUnused(found) {
		if found.Owner != transaction.LoaderProgram || len(found.Data) != size || binary.LittleEndian.Uint32(found.Data) != isBuffer ||
			found.Data[4] != 1 || transaction.PublicKey(found.Data[5:]) != c.Payer() {
			return fmt.Errorf("%w: %s is not this key's buffer for this image", ErrTaken, d.buffer)
		}
		d.begun = true
	} else if d.rent.buffer = missing(d.rent.buffer, found); d.Upgrade {
		d.Cost.Rent = d.rent.buffer // returned by the upgrade
	}
	for at := 0; at < len(d.image); at += transaction.MaxLoaderWrite {
		part := d.piece(uint32(at))
		if !d.begun || !bytes.Equal(found.Data[transaction.BufferHeader+at:][:len(part)], part) {
			d.pieces = append(d.pieces, uint32(at))
		}
	}
	return nil
}

func (d *Deployment) piece(at uint32) []byte {
	return d.image[at:min(int(at)+transaction.MaxLoaderWrite, len(d.image))]
}

// Deploy executes a plan. After each confirmed piece it calls written, if written is not nil.
func (c *Chain) Deploy(ctx context.Context, d *Deployment, written func()) error {
	if d.done {
		return nil
	}
	if err := c.Need(ctx, d.Cost); err != nil {
		return err
	}
	payer := c.Payer()
	if !d.begun {
		made, err := transaction.MakeWithSeed(payer, payer, d.seed, d.rent.buffer, uint64(transaction.BufferHeader+len(d.image)), transaction.LoaderProgram)
		if err != nil {
			return err
		}
		if err := c.operator.Send(ctx, "create a buffer", createUnits, append(made, transaction.InitializeBuffer(d.buffer, payer))...); err != nil {
			return err
		}
	}
	var writes []transaction.Instruction
	for _, at := range d.pieces {
		writes = append(writes, transaction.LoaderWrite(d.buffer, payer, at, d.piece(at)))
	}
	if err := c.operator.SendEach(ctx, "write the program's image", writeUnits, writes, written); err != nil {
		return err
	}
	if d.Upgrade {
		upgrade, err := transaction.Upgrade(d.Program, d.buffer, payer, payer)
		if err != nil {
			return err
		}
		return c.operator.Send(ctx, "upgrade the program", deployUnits, upgrade)
	}
	made, err := transaction.MakeWithSeed(payer, payer, programSeed, d.rent.program, transaction.ProgramSize, transaction.LoaderProgram)
	if err != nil {
		return err
	}
	deploy, err := transaction.Deploy(payer, d.Program, d.buffer, payer, uint64(len(d.image)+programRoom))
	if err != nil {
		return err
	}
	return c.operator.Send(ctx, "deploy the program", deployUnits, append(made, deploy)...)
}

// CheckProgram returns ErrNoProgram if there is no program at the address.
func (c *Chain) CheckProgram(ctx context.Context, program transaction.PublicKey) error {
	found, err := c.account(ctx, program, nil, rpc.Confirmed)
	if err != nil || found != nil && found.Executable {
		return err
	}
	cluster, err := c.Cluster(ctx)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s, on %s; name the program of the run with --program-id, or deploy it: psyche chain deploy", ErrNoProgram, program, cluster)
}

// Vouch returns ErrForeign unless the program at an address has the image. It also returns the
// program's upgrade authority, which is zero for an immutable program. This check matters because a
// program can take everything in the account of a key that signs its transactions.
func (c *Chain) Vouch(ctx context.Context, program transaction.PublicKey, image []byte) (authority transaction.PublicKey, err error) {
	if err := c.CheckProgram(ctx, program); err != nil {
		return authority, err
	}
	found, authority, err := c.image(ctx, program)
	if err != nil {
		return authority, err
	}
	if !sameImage(found, image) {
		return authority, fmt.Errorf("%w: the image of %s is not this version's image", ErrForeign, program)
	}
	return authority, nil
}

// sameImage reports whether an account, which may have extra bytes, contains the image.
func sameImage(found, image []byte) bool {
	return len(found) >= len(image) && bytes.Equal(found[:len(image)], image) && len(bytes.Trim(found[len(image):], "\x00")) == 0
}

// Finalize makes the payer's program immutable.
func (c *Chain) Finalize(ctx context.Context) error {
	program, err := ProgramOf(c.Payer())
	if err != nil {
		return err
	}
	switch _, authority, err := c.image(ctx, program); {
	case err != nil:
		return err
	case authority == (transaction.PublicKey{}):
		return nil // it is already immutable
	case authority != c.Payer():
		return fmt.Errorf("%w: only %s may give up the right to change %s", ErrTaken, authority, program)
	}
	final, err := transaction.Finalize(program, c.Payer())
	if err != nil {
		return err
	}
	return c.operator.Send(ctx, "give up the right to change the program", createUnits, final)
}
