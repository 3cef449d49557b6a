package localnet

import (
	"bytes"
	"slices"

	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

// image returns the content of a buffer and the program loaded from it, if the authority matches.
func (n *nativeCall) image(buffer, authority *runtime.Account) ([]byte, *sbpf.Program) {
	if n.kind(buffer) != loaderBuffer || buffer.Owner != transaction.LoaderProgram {
		n.refusef(runtime.ErrInvalidArgument, "Invalid Buffer account")
	}
	if buffer.Data[bufferAuthority] != 1 || !bytes.Equal(buffer.Data[bufferAuthority+1:transaction.BufferHeader], authority.Key[:]) {
		n.refusef(runtime.ErrIncorrectAuthority, "Buffer and upgrade authority don't match")
	}
	if !authority.Signer {
		n.refusef(runtime.ErrMissingSignature, "Upgrade authority did not sign")
	}
	if len(buffer.Data) <= transaction.BufferHeader {
		n.refusef(runtime.ErrInvalidAccountData, "Buffer account too small")
	}
	image := buffer.Data[transaction.BufferHeader:]
	program, err := sbpf.Load(image)
	if err != nil {
		n.refusef(runtime.ErrInvalidAccountData, "%s", err.Error())
	}
	return image, program
}

func (n *nativeCall) deploy() {
	size := n.data.u64()
	n.ready(8)
	payer, data, program, buffer, authority := n.accounts[0], n.accounts[1], n.accounts[2], n.accounts[3], n.accounts[7]
	if n.accounts[4].Key != transaction.RentSysvar || n.accounts[5].Key != transaction.ClockSysvar {
		refuse(runtime.ErrInvalidArgument)
	}
	n.emptyProgram(program)
	image, loaded := n.image(buffer, authority)
	if size < uint64(len(image)) {
		n.refusef(runtime.ErrAccountDataTooSmall, "Max data length is too small to hold Buffer data")
	}
	if size > runtime.MaxAccountSize-transaction.ProgramDataHeader {
		n.refusef(runtime.ErrInvalidArgument, "Max data length is too large")
	}
	if derived, err := transaction.ProgramData(program.Key); err != nil || derived != data.Key {
		n.refusef(runtime.ErrInvalidArgument, "ProgramData address is not derived")
	}
	n.fund(payer, data, buffer, int(size))
	n.putImage(data, image, authority.Key, loaded)
	program.Data = le.AppendUint32(nil, loaderProgram)
	program.Data = append(program.Data, data.Key[:]...)
	program.Executable = true
	n.log("Deployed program " + transaction.PublicKey(program.Key).String())
}

// emptyProgram refuses an instruction unless an account can become a program.
func (n *nativeCall) emptyProgram(program *runtime.Account) {
	switch {
	case n.kind(program) != loaderNothing:
		n.refusef(runtime.ErrAlreadyInitialized, "Program account already initialized")
	case len(program.Data) < transaction.ProgramSize:
		n.refusef(runtime.ErrAccountDataTooSmall, "Program account too small")
	case program.Lamports < n.sysvars.Rent.Minimum(len(program.Data)):
		n.refusef(runtime.Error{Name: "ExecutableAccountNotRentExempt"}, "Program account not rent-exempt")
	case program.Owner != transaction.LoaderProgram:
		refuse(runtime.ErrExternalData)
	case !program.Writable:
		refuse(runtime.ErrReadonlyData)
	}
}

// fund transfers the buffer's lamports to the payer, and creates the program's data account at the
// payer's expense.
func (n *nativeCall) fund(payer, data, buffer *runtime.Account, size int) {
	switch {
	case !payer.Writable || !buffer.Writable:
		refuse(runtime.ErrReadonlyLamports)
	case !payer.Signer || !data.Writable:
		refuse(runtime.Error{Name: "PrivilegeEscalation"})
	case payer.Lamports+buffer.Lamports < payer.Lamports:
		refuse(runtime.ErrArithmeticOverflow)
	}
	payer.Lamports += buffer.Lamports
	buffer.Lamports, buffer.Data = 0, slices.Clone(buffer.Data[:transaction.BufferHeader])
	need := n.sysvars.Rent.Minimum(transaction.ProgramDataHeader + size)
	n.must(n.charge(systemUnits))
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
		n.refusef(err, "Program %s failed: %v", system, err)
	}
	n.log("Program " + system + " success")
	payer.Lamports -= need
	data.Lamports, data.Owner = need, transaction.LoaderProgram
	data.Data = make([]byte, transaction.ProgramDataHeader+size)
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

func (n *nativeCall) upgrade() {
	n.ready(7)
	data, program, buffer, spill, authority := n.accounts[0], n.accounts[1], n.accounts[2], n.accounts[3], n.accounts[6]
	k := n.kind(program)
	n.kind(data)
	switch {
	case !program.Executable || program.Owner != transaction.LoaderProgram || k != loaderProgram:
		n.refusef(runtime.ErrAccountNotExecutable, "Program account not executable")
	case !bytes.Equal(program.Data[4:transaction.ProgramSize], data.Key[:]):
		n.refusef(runtime.ErrInvalidArgument, "Program and ProgramData account mismatch")
	case !program.Writable || !data.Writable || !buffer.Writable || !spill.Writable:
		refuse(runtime.ErrInvalidArgument)
	}
	image, loaded := n.image(buffer, authority)
	if len(data.Data) < transaction.ProgramDataHeader+len(image) {
		n.refusef(runtime.ErrAccountDataTooSmall, "ProgramData account not large enough")
	}
	n.authorized(data, programAuthority, authority, ofProgram)
	if le.Uint64(data.Data[4:]) == n.sysvars.Clock.Slot {
		n.refusef(runtime.ErrInvalidArgument, "Program was deployed in this block already")
	}
	need := n.sysvars.Rent.Minimum(len(data.Data))
	total := data.Lamports + buffer.Lamports
	if total < need {
		n.refusef(runtime.ErrInsufficientFunds, "Buffer account balance too low to fund upgrade")
	}
	n.putImage(data, image, authority.Key, loaded)
	buffer.Lamports, buffer.Data = 0, slices.Clone(buffer.Data[:transaction.BufferHeader])
	data.Lamports = need
	spill.Lamports += total - need
	n.log("Upgraded program " + transaction.PublicKey(program.Key).String())
}
