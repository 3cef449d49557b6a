package link

import (
	"fmt"
	"strings"
)

// systemCalls are the chain's system calls. A program with an unknown system call would load, and
// fail only when it reaches the call.
var systemCalls = set(`abort sol_panic_ sol_log_ sol_log_64_ sol_log_pubkey sol_log_compute_units_ sol_log_data
	sol_memcpy_ sol_memmove_ sol_memset_ sol_memcmp_ sol_create_program_address sol_try_find_program_address
	sol_sha256 sol_keccak256 sol_blake3 sol_get_clock_sysvar sol_get_rent_sysvar sol_get_epoch_schedule_sysvar
	sol_get_last_restart_slot sol_get_epoch_rewards_sysvar sol_get_epoch_stake sol_get_sysvar
	sol_get_processed_sibling_instruction sol_get_stack_height sol_invoke_signed_c sol_set_return_data
	sol_get_return_data sol_remaining_compute_units`)

func set(names string) map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(names) {
		m[name] = true
	}
	return m
}

// check rejects instructions that the chain does not have. It also rejects 32-bit instructions for
// which the chain and the compiler disagree about the upper half of the result.
func check(text []byte) error {
	for at := 0; at+8 <= len(text); at += 8 {
		op := text[at]
		if op == 0x18 { // has two slots
			at += 8
			continue
		}
		if problem := problemOf(op, le.Uint16(text[at+2:])); problem != "" {
			return fmt.Errorf("link: instruction %d, %#02x, is %s: compile with -mcpu=v2", at/8, op, problem)
		}
	}
	return nil
}

func problemOf(op byte, offset uint16) string {
	class := op & 7
	switch {
	case op == 0xc3 || op == 0xdb:
		return "atomic"
	case (class == 4 || class == 7) && offset != 0:
		return "a signed division or a sign-extending move"
	case op == 0xd7:
		return "a byte swap"
	case class == 6:
		return "a 32-bit jump"
	case op == 0x04 || op == 0x0c || op == 0x14 || op == 0x1c || op == 0x24 || op == 0x2c:
		return "32-bit arithmetic"
	case class == 0 || class == 1 && op&0xe0 != 0x60:
		return "a load of another instruction set, or a sign-extending load"
	}
	return ""
}
