package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// readText joins the .go files of a folder.
func readText(folder string) ([]byte, error) {
	if folder == "" {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return nil, fmt.Errorf("find Go's library: %w; name a folder with --text", err)
		}
		folder = filepath.Join(strings.TrimSpace(string(root)), "src", "net")
	}
	var text []byte
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		content, err := os.ReadFile(path)
		text = append(text, content...)
		return err
	})
	if err == nil && len(text) < 1<<16 {
		err = fmt.Errorf("%s: %d bytes of .go files, want at least 64 KiB; name another folder with --text", folder, len(text))
	}
	return text, err
}
