// Package cputime measures work in tests and benchmarks by the processor: what else runs on the machine does not count.
package cputime

import (
	"syscall"
	"time"
)

// Used returns the time that processors have worked for this process.
func Used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // not on a system that has the call
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
