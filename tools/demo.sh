#!/bin/sh
# The main job on a real checkpoint, each step with the command line that repeats it. Called by `./dev demo`.
set -eu
top=$(pwd)
model=$("$top/build/venv/bin/python" tools/demo_checkpoint.py build/demo)
PATH=$top/build/release:$PATH
cd "$model/.."
name=$(basename "$model")

# step TITLE COMMAND...: prints the command as it can be pasted, then runs it.
step() {
    printf '\n# %s\n$ %s\n' "$1" "$2"
    sh -c "$2"
}

echo
echo "The checkpoint lies in $(pwd). To repeat a step:"
echo "  cd '$(pwd)'; PATH='$top/build/release':\$PATH"
step "What is this?" "heft info $name"
step "What is inside, and where are the bytes?" "heft ls --tree --depth 3 $name"
step "Is it whole? Every rule of the format is checked, no tensor byte is read." "heft check $name"
step "The tensors of one layer: name, dtype, shape, size, and where they lie in the file." \
    "heft ls -l $name 'encoder.layer.0.attention.*'"
step "A corner of a matrix: one read of the span of its rows, and nothing else." "heft show -v $name 'embeddings.word_embeddings.weight[100:104, :6]'"
step "Every 5,000th row, last column, as NumPy would index it." "heft show $name 'embeddings.word_embeddings.weight[::5000, -1]'"
step "Are the values sane? One pass in bounded memory." "heft show --stats $name 'embeddings.word_embeddings.weight'"
step "For scripts: any command speaks JSON." "heft ls --json $name 'pooler.*'"

printf '\n# A copy that lost its last byte: what does heft say?\n'
step "Cut it." "head -c -1 $name/model.safetensors >cut.safetensors"
step "Check it: the exit status is 1, the reason is spelled out." "heft check cut.safetensors; echo \"exit status \$?\""
rm -f cut.safetensors

step "How would it be loaded: which tensors, by which path and why, in how much memory? No tensor byte is read for that." \
    "heft plan $name"
step "One rank of two, as a server with tensor parallelism wants it: what is read then?" \
    "heft plan --tp-world 2 --tp-rank 0 --tp-rule '*.query.weight=row' --tp-rule '*.output.dense.weight=column' $name"
step "Load it all, and read every byte once." "heft load --touch $name"
step "How near is that to what this machine can do at all? The bound is a bare program that reads the same bytes." \
    "heft bench $name"
printf '\nNext: heft --help, ./dev install, ./dev test quick\n'
