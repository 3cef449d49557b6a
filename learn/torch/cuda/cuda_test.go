package cuda

import (
	"fmt"
	"strings"
	"testing"
)

// TestSource checks the constants of the text, and that it defines all kernels.
func TestSource(t *testing.T) {
	if !strings.Contains(Source, fmt.Sprintf("#define PIECES_THREADS %d\n", Threads)) {
		t.Errorf("the text has another number of threads than %d", Threads)
	}
	if strings.Contains(Source, "#include") {
		t.Error("the text includes a file")
	}
	for _, name := range Names() {
		plain := strings.TrimPrefix(name, "psyche_")
		both := strings.TrimSuffix(strings.TrimSuffix(plain, "_f32"), "_bf16")
		if !strings.Contains(Source, "KERNEL "+name+"(") && !strings.Contains(Source, "PIECES("+both+", ") {
			t.Errorf("the text does not define %s", name)
		}
	}
	if got, want := len(Names()), 2*strings.Count(Source, "\nPIECES(")+strings.Count(Source, "\nKERNEL "); got != want {
		t.Errorf("%d names, the text has %d kernels", got, want)
	}
}
