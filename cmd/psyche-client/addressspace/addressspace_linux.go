//go:build cgo

package addressspace

/*
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { need = 2100000 };

__attribute__((constructor)) static void check(void) {
	struct rlimit limit;
	char text[256];
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur / 1024 >= need) {
		return;
	}
	int size = snprintf(text, sizeof text,
		"%.64s: the address space is limited to %llu KiB, want at least %d KiB; run: ulimit -v unlimited\n",
		program_invocation_short_name, (unsigned long long)(limit.rlim_cur / 1024), need);
	ssize_t written = write(2, text, size);
	(void)written;
	_exit(1);
}
*/
import "C"

// The C constructor runs before Go code, so it has its own copy of need. This line does not compile if
// they differ.
var _ = [1]struct{}{}[need-C.need]
