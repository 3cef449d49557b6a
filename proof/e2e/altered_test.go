package e2e

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/proof/testbed"
)

// building guards the building of altered clients.
var building sync.Mutex

// startAltered starts an altered client whose program is in a folder below this one.
func (c *client) startAltered(folder string, flags ...string) {
	t := c.network.t
	t.Helper()
	program, args := alteredProgram(t, folder), append([]string{"-server", c.network.address, "-run", "e2e", "-key", c.key, "-events", c.eventsPath()}, flags...)
	if c.wrap != nil {
		program, args = c.wrap(program, args...)
	}
	c.process = start(t, c.name, filepath.Join(c.dir, "output.log"), program, nil, args...)
}

// alteredProgram returns the path of an altered client. It builds the program once.
func alteredProgram(t *testing.T, folder string) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	program := filepath.Join(filepath.Dir(clientBinary), filepath.Base(folder))
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if err := testbed.Compile(t.Context(), program, filepath.Join("..", ".."), "./proof/e2e/"+folder, "CGO_ENABLED=1"); err != nil {
		t.Fatal(err)
	}
	return program
}
