package localnet

import (
	"bytes"
	"slices"

	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

// image returns the content of a buffer and the program loaded from it, if the authority matches.
func (n *nativeCall) image(buffer, authority *runtime.Account) ([]byte, *sbpf.Program, error) {
	if k, err := kind(buffer); err != nil {
		return nil, nil, err
	} else if k != loaderBuffer || buffer.Owner != transaction.LoaderProgram {
		n.log("Invalid Buffer account")
		return nil, nil, runtime.ErrInvalidArgument
	}
	if buffer.Data[bufferAuthority] != 1 || !bytes.Equal(buffer.Data[bufferAuthority+1:transaction.BufferHeader], authority.Key[:]) {
		n.log("Buffer and upgrade authority don't match")
		return nil, nil, runtime.ErrIncorrectAuthority
	}
	if !authority.Signer {
		n.log("Upgrade authority did not sign")
		return nil, nil, runtime.ErrMissingSignature
	}
	if len(buffer.Data) <= transaction.BufferHeader {
		n.log("Buffer account too small")
		return nil, nil, runtime.ErrInvalidAccountData
	}
	image := buffer.Data[transaction.BufferHeader:]
	program, err := sbpf.Load(image)
	if err != nil {
		n.log(err.Error())
		return nil, nil, runtime.ErrInvalidAccountData
	}
	return image, program, nil
}

func (n *nativeCall) deploy() error {
	size := n.data.u64()
	if err := n.ready(8); err != nil {
		return err
	}
	payer, data, program, buffer, authority := n.accounts[0], n.accounts[1], n.accounts[2], n.accounts[3], n.accounts[7]
	if n.accounts[4].Key != transaction.RentSysvar || n.accounts[5].Key != transaction.ClockSysvar {
		return runtime.ErrInvalidArgument
	}
	if err := n.emptyProgram(program); err != nil {
		return err
	}
	image, loaded, err := n.image(buffer, authority)
	if err != nil {
		return err
	}
	if size < uint64(len(image)) {
		n.log("Max data length is too small to hold Buffer data")
		return runtime.ErrAccountDataTooSmall
	}
	if size > runtime.MaxAccountSize-transaction.ProgramDataHeader {
		n.log("Max data length is too large")
		return runtime.ErrInvalidArgument
	}
	if derived, err := transaction.ProgramData(program.Key); err != nil || derived != data.Key {
		n.log("ProgramData address is not derived")
		return runtime.ErrInvalidArgument
	}
	if err := n.fund(payer, data, buffer, int(size)); err != nil {
		return err
	}
	n.putImage(data, image, authority.Key, loaded)
	program.Data = le.AppendUint32(nil, loaderProgram)
	program.Data = append(program.Data, data.Key[:]...)
	program.Executable = true
	n.log("Deployed program " + transaction.PublicKey(program.Key).String())
	return nil
}

// emptyProgram returns an error unless an account can become a program.
func (n *nativeCall) emptyProgram(program *runtime.Account) error {
	k, err := kind(program)
	switch {
	case err != nil:
		return err
	case k != loaderNothing:
		n.log("Program account already initialized")
		return runtime.ErrAlreadyInitialized
	case len(program.Data) < transaction.ProgramSize:
		n.log("Program account too small")
		return runtime.ErrAccountDataTooSmall
	case program.Lamports < n.sysvars.Rent.Minimum(len(program.Data)):
		n.log("Program account not rent-exempt")
		return runtime.Error{Name: "ExecutableAccountNotRentExempt"}
	case program.Owner != transaction.LoaderProgram:
		return runtime.ErrExternalData
	case !program.Writable:
		return runtime.ErrReadonlyData
	}
	return nil
}

// fund transfers the buffer's lamports to the payer, and creates the program's data account at the
// payer's expense.
func (n *nativeCall) fund(payer, data, buffer *runtime.Account, size int) error {
	switch {
	case !payer.Writable || !buffer.Writable:
		return runtime.ErrReadonlyLamports
	case !payer.Signer || !data.Writable:
		return runtime.Error{Name: "PrivilegeEscalation"}
	case payer.Lamports+buffer.Lamports < payer.Lamports:
		return runtime.ErrArithmeticOverflow
	}
	payer.Lamports += buffer.Lamports
	buffer.Lamports, buffer.Data = 0, slices.Clone(buffer.Data[:transaction.BufferHeader])
	need := n.sysvars.Rent.Minimum(transaction.ProgramDataHeader + size)
	if err := n.charge(systemUnits); err != nil {
		return err
	}
	system := transaction.SystemProgram.String()
	n.log("Program " + system + " invoke [2]")
	var err error
	switch {
	case data.Lamports > 0:
		n.logf("Create Account: account Address { address: %s, base: None } already in use", transaction.PublicKey(data.Key))
		err = runtime.Custom(systemInUse)
	case payer.Lamports < need:
		n.logf("Transfer: insufficient lamports %d, need %d", payer.Lamports, need)
		err = runtime.Custom(systemNoLamports)
	}
	if err != nil {
		n.log("Program " + system + " failed: " + err.Error())
		return err
	}
	n.log("Program " + system + " success")
	payer.Lamports -= need
	data.Lamports, data.Owner = need, transaction.LoaderProgram
	data.Data = make([]byte, transaction.ProgramDataHeader+size)
	return nil
}

// putImage fills the account of a program's data.
func (n *nativeCall) putImage(data *runtime.Account, image []byte, authority transaction.PublicKey, program *sbpf.Program) {
	b := make([]byte, len(data.Data))
	le.PutUint32(b, loaderProgramData)
	le.PutUint64(b[4:], n.sysvars.Clock.Slot)
	putAuthority(b, programAuthority, authority)
	copy(b[transaction.ProgramDataHeader:], image)
	data.Data = b
	n.programs[data.Key] = program
}

func (n *nativeCall) upgrade() error {
	if err := n.ready(7); err != nil {
		return err
	}
	data, program, buffer, spill, authority := n.accounts[0], n.accounts[1], n.accounts[2], n.accounts[3], n.accounts[6]
	k, err := kind(program)
	if err == nil {
		_, err = kind(data)
	}
	switch {
	case err != nil:
		return err
	case !program.Executable || program.Owner != transaction.LoaderProgram || k != loaderProgram:
		n.log("Program account not executable")
		return runtime.ErrAccountNotExecutable
	case !bytes.Equal(program.Data[4:transaction.ProgramSize], data.Key[:]):
		n.log("Program and ProgramData account mismatch")
		return runtime.ErrInvalidArgument
	case !program.Writable || !data.Writable || !buffer.Writable || !spill.Writable:
		return runtime.ErrInvalidArgument
	}
	image, loaded, err := n.image(buffer, authority)
	if err != nil {
		return err
	}
	if len(data.Data) < transaction.ProgramDataHeader+len(image) {
		n.log("ProgramData account not large enough")
		return runtime.ErrAccountDataTooSmall
	}
	if err := n.authorized(data, programAuthority, authority, ofProgram); err != nil {
		return err
	}
	if le.Uint64(data.Data[4:]) == n.sysvars.Clock.Slot {
		n.log("Program was deployed in this block already")
		return runtime.ErrInvalidArgument
	}
	need := n.sysvars.Rent.Minimum(len(data.Data))
	total := data.Lamports + buffer.Lamports
	if total < need {
		n.log("Buffer account balance too low to fund upgrade")
		return runtime.ErrInsufficientFunds
	}
	n.putImage(data, image, authority.Key, loaded)
	buffer.Lamports, buffer.Data = 0, slices.Clone(buffer.Data[:transaction.BufferHeader])
	data.Lamports = need
	spill.Lamports += total - need
	n.log("Upgraded program " + transaction.PublicKey(program.Key).String())
	return nil
}
