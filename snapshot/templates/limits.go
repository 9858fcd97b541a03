package templates

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
)

const (
	// maxText bounds the template text of one part, maxOutput its result.
	maxText   = 256 << 10
	maxOutput = 1 << 20
	// maxSteps bounds the iterations of all loops of a policy together.
	maxSteps = 10_000
	// maxProblem bounds the text of a problem.
	maxProblem = 1 << 10

	stepFunction, outputFunction = "opgateStep", "opgateOutput"
)

// limitError is an error of our own functions, which the template library wraps with its position. The text
// is reported without that.
type limitError string

func (e limitError) Error() string { return string(e) }

func limitErrorf(format string, args ...any) error { return limitError(fmt.Sprintf(format, args...)) }

// undecided are the functions whose result depends on the replica or the time, so that two replicas would judge the
// same write differently, and getHostByName, which queries servers of the author's choice.
var undecided = []string{
	"now", "ago", "shuffle", "uuidv4", "getHostByName",
	"randAlpha", "randAlphaNum", "randAscii", "randNumeric", "randInt", "randBytes",
	"bcrypt", "htpasswd", "derivePassword", "encryptAES",
	"genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert",
	"genSignedCertWithKey",
}

// limits are the functions that enforce the bounds of templates, for one resolution of a policy.
type limits struct {
	ctx context.Context // the library passes no context to functions of templates
	// steps are the iterations of loops; output, produced and found are bytes that were written, made by functions and
	// looked up.
	steps, output, produced, found int
	// anchor and alias report whether the output has what YAML would take for one.
	anchor, alias bool
}

func (l *limits) functions() template.FuncMap {
	functions := template.FuncMap{
		stepFunction: l.step, outputFunction: l.out,
		argumentFunction: l.argument, resultFunction: l.result, shallowFunction: l.shallow, lookupFunction: l.lookedUp,
		"fromSecret": withoutSecrets("fromSecret"), "copySecretData": withoutSecrets("copySecretData"),
		"until":     func(count int) ([]int, error) { return l.numbers(0, count, sign(count)) },
		"untilStep": l.numbers,
		"seq":       l.sequence,
		"indent":    l.indent,
	}
	maps.Copy(functions, checked)
	return functions
}

// step is inserted at the beginning of every loop's body.
func (l *limits) step() (string, error) {
	if err := l.ctx.Err(); err != nil {
		return "", limitErrorf("it takes too long")
	}
	if l.steps++; l.steps > maxSteps {
		return "", limitErrorf("its loops go round more than %d times", maxSteps)
	}
	return "", nil
}

// out is inserted at the end of every action that writes to the output.
func (l *limits) out(value any) (any, error) {
	if value == nil {
		return nil, limitErrorf("a value that it asks for is not there; where that is meant, pipe it to default")
	}
	text, ok := value.(string)
	if !ok {
		if measure(value, maxOutput) > maxOutput {
			return nil, limitErrorf("it resolves to more than 1 MiB, or to what is nested too deep")
		}
		text = fmt.Sprint(value) // as it will be printed
	}
	if err := l.written(text); err != nil {
		return nil, err
	}
	if l.output += len(text); l.output > maxOutput {
		return nil, limitErrorf("it resolves to more than 1 MiB")
	}
	return value, nil
}

// written refuses output that has both an anchor and an alias: the library reads it as YAML, also without the quotes
// that the policy has, and a few aliases are a large document.
func (l *limits) written(text string) error {
	l.anchor, l.alias = l.anchor || marks(text, '&'), l.alias || marks(text, '*')
	if l.anchor && l.alias {
		return limitErrorf("it resolves to text with words that begin with & and *, which could be anchors and aliases of YAML")
	}
	return nil
}

// numbers is sprig's untilStep.
func (l *limits) numbers(start, stop, step int) ([]int, error) {
	list := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if list = append(list, i); len(list) > maxSteps {
			return nil, limitErrorf("a list of more than %d numbers", maxSteps)
		}
	}
	return list, nil
}

// sequence is sprig's seq: like seq of Unix, with the end included.
func (l *limits) sequence(args ...int) (string, error) {
	start, stop, step := 1, 0, 0
	switch len(args) {
	case 1:
		stop = args[0]
	case 2:
		start, stop = args[0], args[1]
	case 3:
		start, step, stop = args[0], args[1], args[2]
	default:
		return "", nil
	}
	if step == 0 {
		step = 1
		if stop < start {
			step = -1
		}
	}
	list, err := l.numbers(start, stop+sign(step), step)
	return strings.Trim(fmt.Sprint(list), "[]"), err
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

// bounded rewrites template text so that its loops are counted and its output is measured; nothing else can
// stop a running template.
func (l *limits) bounded(text string) (string, error) {
	if len(text) > maxText {
		return "", fmt.Errorf("it is longer than %d KiB", maxText>>10)
	}
	const name = "policy"
	tree := parse.New(name)
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse(text, "{{", "}}", trees); err != nil {
		return "", err
	}
	if len(trees) > 1 {
		return "", errors.New("define and block are not supported")
	}
	if err := l.boundList(tree, tree.Root); err != nil {
		return "", err
	}
	return tree.Root.String(), nil
}

func (l *limits) boundList(tree *parse.Tree, list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.TextNode:
			if err := l.written(string(node.Text)); err != nil {
				return err
			}
		case *parse.ActionNode:
			countPipe(tree, node.Pipe)
			last := node.Pipe.Cmds[len(node.Pipe.Cmds)-1].String()
			if len(node.Pipe.Decl) > 0 || last == "autoindent" { // autoindent must be last, and counts itself
				continue
			}
			node.Pipe.Cmds = append(node.Pipe.Cmds, command(tree, outputFunction))
		case *parse.RangeNode:
			if err := l.boundBranch(tree, &node.BranchNode); err != nil {
				return err
			}
			step := &parse.ActionNode{NodeType: parse.NodeAction, Pipe: &parse.PipeNode{
				NodeType: parse.NodePipe, Cmds: []*parse.CommandNode{command(tree, stepFunction)}}}
			node.List.Nodes = append([]parse.Node{step}, node.List.Nodes...)
		case *parse.IfNode:
			if err := l.boundBranch(tree, &node.BranchNode); err != nil {
				return err
			}
		case *parse.WithNode:
			if err := l.boundBranch(tree, &node.BranchNode); err != nil {
				return err
			}
		case *parse.TemplateNode:
			return errors.New("template is not supported")
		}
	}
	return nil
}

func (l *limits) boundBranch(tree *parse.Tree, branch *parse.BranchNode) error {
	countPipe(tree, branch.Pipe)
	if err := l.boundList(tree, branch.List); err != nil {
		return err
	}
	return l.boundList(tree, branch.ElseList)
}

// command returns a call of one of our functions, with numbers before what is piped to it.
func command(tree *parse.Tree, function string, number ...int) *parse.CommandNode {
	args := []parse.Node{parse.NewIdentifier(function).SetTree(tree)}
	for _, n := range number {
		args = append(args, &parse.NumberNode{NodeType: parse.NodeNumber, IsInt: true, Int64: int64(n),
			Text: strconv.Itoa(n)})
	}
	return &parse.CommandNode{NodeType: parse.NodeCommand, Args: args}
}
