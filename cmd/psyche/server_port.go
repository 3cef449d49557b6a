package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// portFile is the file in --save-state-dir with the last listening port. Disconnected clients look
// for the server at this port.
const portFile = "port"

// lastPort returns the last port of a server without --server-port, or 0.
func (c serverRun) lastPort() (uint16, error) {
	if c.SaveStateDir == "" || c.ServerPort != 0 {
		return 0, nil
	}
	path := filepath.Join(c.SaveStateDir, portFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("the server's last port: %w", err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%s contains no port: set --server-port, or remove the file", path)
	}
	return uint16(port), nil
}

// keepPort saves the port for the next start.
func (c serverRun) keepPort(address net.Addr) error {
	tcp, ok := address.(*net.TCPAddr)
	if c.SaveStateDir == "" || !ok {
		return nil
	}
	path := filepath.Join(c.SaveStateDir, portFile)
	unfinished := path + ".new"
	if err := os.WriteFile(unfinished, fmt.Appendf(nil, "%d\n", tcp.Port), 0o644); err != nil {
		return fmt.Errorf("save the server's port: %w", err)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("save the server's port: %w", err)
	}
	return nil
}

// explainTakenPort explains why the server wants a port that is in use.
func (c serverRun) explainTakenPort(last uint16, err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if last == 0 || !ok || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	if tcp, ok := op.Addr.(*net.TCPAddr); !ok || tcp.Port != int(last) {
		return err
	}
	return fmt.Errorf("%w; the server used this port before (%s), and its clients still connect to it: free the port, or choose another with --server-port and tell the clients",
		err, filepath.Join(c.SaveStateDir, portFile))
}
