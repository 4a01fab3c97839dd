# Completion of heft for bash: commands, options, paths, and tensor names for ls and show.

_heft_options() {
    heft "$1" --help 2>/dev/null | sed -n 's/^ *\(-[a-z0-9], \)\{0,1\}\(--[a-z-]*\).*/\2/p'
}

# Names come from a file that may mean harm: they are compared, never expanded (compgen -W would run what is in them).
_heft_names() {
    local name
    [ -e "$1" ] || return
    while IFS= read -r name; do
        [[ $name == "$2"* ]] && COMPREPLY+=("$name")
    done < <(heft ls -1 -q -- "$1" 2>/dev/null)
}

_heft() {
    local cur prev command word i path='' count=0
    cur=${COMP_WORDS[COMP_CWORD]}
    prev=${COMP_WORDS[COMP_CWORD - 1]}
    command=${COMP_WORDS[1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        word='ls info show check stats plan load warm bench diff copy align shard merge edit digest verify --help --version'
        mapfile -t COMPREPLY < <(compgen -W "$word" -- "$cur")
        return
    fi
    case $prev in
    --order) word='natural bytes file' ;;
    --sort) word='name size offset dtype' ;;
    --format) word='raw json npy' ;;
    --index-mode) word='exact prefer ignore' ;;
    --links) word='follow beneath' ;;
    --void1) word='F8_E4M3 F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ F8_E8M0 U8 I8' ;;
    --void2) word='BF16 F16 U16 I16' ;;
    --skip) word='vision mtp activation-scales vision,mtp' ;;
    --fail-on) word='nan inf nan,inf' ;;
    --preset) word='atlas vllm' ;;
    --io) word='auto map buffered direct' ;;
    --engine) word='auto pool uring' ;;
    --to) word='safetensors sharded npz npy' ;;
    --foreign) word='refuse void uint' ;;
    --dtype) word='bf16 f16 f32 f64' ;;
    --depth | --jobs | -j | --variant | --max-header | --stdin-limit | --index | -i | --include | --exclude | --defer | \
        --ep-rank | --ep-world | --experts | --replicated | --tp-rank | --tp-world | --tp-rule | --workers | --align | \
        --limit | --reserve | --multiplier | --repeat | --samples | --tolerance | --relative | --shard-size | \
        --dtype-for | --transpose | --rename | --metadata | --set | --delete | --drop) return ;;
    --output | -o | --kinds | --map | --overlay | --cache)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    *) word='' ;;
    esac
    if [ -n "$word" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$word" -- "$cur")
        return
    fi
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_heft_options "$command")" -- "$cur")
        return
    fi
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -o | --output | -i | --index | -n | --name | --order | --sort | --format | --depth | -j | --jobs | --kinds | \
            --overlay | --cache | --variant | --void1 | --void2 | --links | --index-mode | --max-header | --stdin-limit | --set | --delete | --rename | --drop) ((i++)) ;;
        -*) ;;
        *)
            [ "$count" -eq 0 ] && path=${COMP_WORDS[i]}
            ((count++))
            ;;
        esac
    done
    if [ "$prev" = --name ] || [ "$prev" = -n ] || { [ "$count" -ge 1 ] && [[ $command == ls || $command == show || $command == stats || $command == digest ]]; }; then
        _heft_names "$path" "$cur"
        [ ${#COMPREPLY[@]} -gt 0 ] && return
    fi
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

complete -o filenames -F _heft heft
