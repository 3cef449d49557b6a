package secure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/identity"
)

// knownServersVariable is the environment variable with the path of the file of known servers.
const knownServersVariable = "PSYCHE_KNOWN_SERVERS"

// maxKnownServersSize is the maximum size of the file of known servers in bytes.
const maxKnownServersSize = 1 << 20

// lockTimeout is the maximum wait for another program that is adding a server.
const lockTimeout = 5 * time.Second

// KnownServers is a file with the first key seen for each server address. Each line contains an
// address and a key in base58, separated by a space. Empty lines and lines that start with # are
// skipped. If an address has several lines, the first counts.
type KnownServers struct {
	Path string
	// FirstUse is called when an unknown address has been added. May be nil.
	FirstUse func(address string, key identity.ID)

	mu sync.Mutex
}

// defaultKnownServers returns the path of the user's file of known servers: the value of
// knownServersVariable, or psyche/known_servers in the user's configuration folder.
func defaultKnownServers() (string, error) {
	if path := os.Getenv(knownServersVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no default folder for the file of known servers; pass the file or the server's key: %w", err)
	}
	return filepath.Join(dir, "psyche", "known_servers"), nil
}

// Choose selects how to verify a server, from user input. serverKey is the server's key in base58.
// If it is empty, path is the path of a file of known servers, by default defaultKnownServers.
// Choose returns either the key or the file. firstUse becomes KnownServers.FirstUse.
func Choose(serverKey, path string, firstUse func(string, identity.ID)) (identity.ID, *KnownServers, error) {
	if serverKey != "" {
		id, err := identity.ParseID(serverKey)
		if err != nil {
			return id, nil, fmt.Errorf("key of the server: %w", err)
		}
		return id, nil, nil
	}
	if path == "" {
		var err error
		if path, err = defaultKnownServers(); err != nil {
			return identity.ID{}, nil, err
		}
	}
	return identity.ID{}, &KnownServers{Path: path, FirstUse: firstUse}, nil
}

// Check returns a function that accepts only the key recorded for address, and otherwise returns
// ErrServerChanged. If address is unknown, the function records the given key and accepts it.
func (k *KnownServers) Check(address string) func(identity.ID) error {
	return func(found identity.ID) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if known, _ := k.check(address, found); known {
			return nil
		}
		free, err := k.lock()
		if err != nil {
			return err
		}
		known, err := k.check(address, found) // another program may have added it meanwhile
		if !known && err == nil {
			err = k.add(address, found)
		}
		free()
		if !known && err == nil && k.FirstUse != nil {
			k.FirstUse(address, found)
		}
		return err
	}
}

// check reports whether the file contains this key for the address. It returns ErrServerChanged if
// the file contains another key for it.
func (k *KnownServers) check(address string, found identity.ID) (bool, error) {
	want, line, err := k.find(address)
	if err != nil || line == 0 || want == found {
		return line > 0, err
	}
	return false, fmt.Errorf("%w: %s had %s (line %d of %s) and now has %s; remove the line if the operator confirms the new key; otherwise another machine may be intercepting the connection",
		ErrServerChanged, address, want, line, k.Path, found)
}

// lock keeps other programs from adding to the file until the returned function is called. If the
// file system does not support locks, lock does nothing. Two programs that see a new server at the
// same time may then both add it, and the first line counts.
func (k *KnownServers) lock() (free func(), err error) {
	if err := os.MkdirAll(filepath.Dir(k.Path), 0o755); err != nil {
		return nil, fmt.Errorf("known servers: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	file, err := filelock.Wait(ctx, k.Path, 0o644)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, fmt.Errorf("known servers: %w", err)
	case err != nil:
		return func() {}, nil
	}
	return func() { _ = file.Close() }, nil
}

// find returns the key of an address and the number of its line, or 0 if it is unknown.
func (k *KnownServers) find(address string) (identity.ID, int, error) {
	file, err := os.Open(k.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return identity.ID{}, 0, nil
	}
	if err != nil {
		return identity.ID{}, 0, fmt.Errorf("known servers: %w", err)
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || info.Size() > maxKnownServersSize {
		return identity.ID{}, 0, fmt.Errorf("known servers %s: more than %d bytes; is this the right file?", k.Path, maxKnownServersSize)
	}
	return findKnown(file, k.Path, address)
}

// findKnown searches the text of a file of known servers for an address.
func findKnown(text io.Reader, path, address string) (identity.ID, int, error) {
	lines := bufio.NewScanner(text)
	number := 1
	for ; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return identity.ID{}, 0, fmt.Errorf("known servers %s, line %d: want an address and a key, found %d words", path, number, len(fields))
		}
		key, err := identity.ParseID(fields[1])
		if err != nil {
			return identity.ID{}, 0, fmt.Errorf("known servers %s, line %d: %w", path, number, err)
		}
		if fields[0] == address {
			return key, number, nil
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return identity.ID{}, 0, fmt.Errorf("known servers %s, line %d: the line is too long, want an address and a key; is this the right file?", path, number)
	}
	if err := lines.Err(); err != nil {
		return identity.ID{}, 0, fmt.Errorf("known servers %s: %w", path, err)
	}
	return identity.ID{}, 0, nil
}

// add appends a line with a single write.
func (k *KnownServers) add(address string, key identity.ID) error {
	if address == "" || strings.ContainsAny(address, " \t\r\n#") {
		return fmt.Errorf("known servers: invalid address %q", address)
	}
	file, err := os.OpenFile(k.Path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("known servers: %w", err)
	}
	line := address + " " + key.String() + "\n"
	if needsNewline(file) {
		line = "\n" + line
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return errors.Join(fmt.Errorf("known servers %s: %w", k.Path, err), file.Close())
	}
	if _, err = file.WriteString(line); err == nil {
		err = file.Sync()
	}
	if err != nil { // a partial line would be unreadable
		err = errors.Join(err, file.Truncate(end))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("known servers %s: %w", k.Path, err)
	}
	return nil
}

// needsNewline reports whether the file ends inside a line.
func needsNewline(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	var last [1]byte
	_, err = file.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}
