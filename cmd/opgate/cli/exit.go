package cli

// ExitError is an error with the exit code of the process. Its message is empty if everything has been printed.
type ExitError struct {
	Code    int
	Message string
}

func (e *ExitError) Error() string { return e.Message }

// ExitCode returns the exit code of the process.
func (e *ExitError) ExitCode() int { return e.Code }
