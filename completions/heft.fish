# Completion of heft for fish: commands, options, paths, and tensor names for ls and show.

function __heft_path
    for word in (commandline -opc)[3..-1]
        if not string match -q -- '-*' $word; and test -e $word
            echo $word
            return 0
        end
    end
    return 1
end

function __heft_names
    set -l path (__heft_path); and heft ls -1 -q -- $path 2>/dev/null
end

complete -c heft -n __fish_use_subcommand -f -a ls -d 'list tensors'
complete -c heft -n __fish_use_subcommand -f -a info -d 'tell what a model is'
complete -c heft -n __fish_use_subcommand -f -a show -d 'show values'
complete -c heft -n __fish_use_subcommand -f -a check -d 'tell whether a model is whole'
complete -c heft -n __fish_use_subcommand -f -a stats -d 'tell what the values of tensors are'
complete -c heft -n __fish_use_subcommand -f -a plan -d 'tell how a model would be loaded'
complete -c heft -n __fish_use_subcommand -f -a load -d 'load a model and tell what that took'
complete -c heft -n __fish_use_subcommand -f -a warm -d 'bring a model into the page cache'
complete -c heft -n __fish_use_subcommand -f -a bench -d 'measure each way to load a model'
complete -c heft -n __fish_use_subcommand -f -a diff -d 'tell how two models differ'
complete -c heft -n __fish_use_subcommand -f -a copy -d 'write a model in another form'
complete -c heft -n __fish_use_subcommand -f -a align -d 'write a model with aligned tensors'
complete -c heft -n __fish_use_subcommand -f -a shard -d 'write a model as several files'
complete -c heft -n __fish_use_subcommand -f -a merge -d 'write a model as one file'
complete -c heft -n __fish_use_subcommand -f -a edit -d 'change metadata, names and faults'
complete -c heft -n __fish_use_subcommand -f -a digest -d 'make checksums of tensors or files'
complete -c heft -n __fish_use_subcommand -f -a verify -d 'compare with checksums'
complete -c heft -n __fish_use_subcommand -f -l version -d 'version and features'

complete -c heft -l json -d 'print JSON'
complete -c heft -s q -l quiet -d 'no warnings'
complete -c heft -l strict -d 'warnings are errors'
complete -c heft -l lenient -d 'admit deviations with a warning'
complete -c heft -l index-mode -x -a 'exact prefer ignore' -d 'what the index means'
complete -c heft -l void1 -x -a 'F8_E4M3 F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ F8_E8M0 U8 I8' -d 'what V1 of NumPy is'
complete -c heft -l void2 -x -a 'BF16 F16 U16 I16' -d 'what V2 of NumPy is'
complete -c heft -l variant -x -d 'variant of a directory'
complete -c heft -l overlay -r -F -d 'a file laid over the checkpoint'
complete -c heft -l links -x -a 'follow beneath' -d 'where links may lead'
complete -c heft -l max-header -x -d 'longest header'
complete -c heft -l stdin-limit -x -d 'most that is read of a pipe'
complete -c heft -n '__fish_seen_subcommand_from ls info show check stats digest verify' -s j -l jobs -x -d threads
complete -c heft -s h -l help -d 'options and examples'

set -l ls '__fish_seen_subcommand_from ls'
complete -c heft -n $ls -s l -l long -d 'offset, alignment, file'
complete -c heft -n $ls -l sort -x -a 'name size offset dtype' -d keys
complete -c heft -n $ls -s r -l reverse -d 'the other way round'
complete -c heft -n $ls -l order -x -a 'natural bytes file' -d order
complete -c heft -n $ls -l fold -d 'one line for numbered tensors'
complete -c heft -n $ls -l tree -d 'sums by name segment'
complete -c heft -n $ls -l depth -x -d levels
complete -c heft -n $ls -l expand -d 'no folding'
complete -c heft -n $ls -l models -d 'one row for each path'
complete -c heft -n $ls -s 1 -l names -d 'names only'
complete -c heft -n $ls -s b -l bytes -d 'exact numbers'
complete -c heft -n '__fish_seen_subcommand_from ls info' -l fillers -d 'show fillers'
complete -c heft -n '__fish_seen_subcommand_from ls info digest verify' -l unknown-dtypes -d 'as opaque bytes'
complete -c heft -n '__fish_seen_subcommand_from ls show stats digest; and __heft_path >/dev/null' -a '(__heft_names)' -d tensor

complete -c heft -n '__fish_seen_subcommand_from info' -l kinds -r -d 'rules for kinds of model'

set -l show '__fish_seen_subcommand_from show'
complete -c heft -n $show -l stats -d statistics
complete -c heft -n $show -s n -l name -x -a '(__heft_names)' -d 'exact name'
complete -c heft -n $show -s i -l index -x -d index
complete -c heft -n $show -s o -l output -r -d output
complete -c heft -n $show -l format -x -a 'raw json npy' -d 'of the output'
complete -c heft -n $show -s f -l force -d 'replace the output'
complete -c heft -n '__fish_seen_subcommand_from show check plan' -s v -l verbose -d 'say more'

set -l loaders '__fish_seen_subcommand_from plan load warm'
complete -c heft -n $loaders -l include -x -d 'only what matches'
complete -c heft -n $loaders -l exclude -x -d 'not what matches'
complete -c heft -n $loaders -l skip -x -a 'vision mtp activation-scales' -d 'what serving does not read'
complete -c heft -n $loaders -l defer -x -d 'locate, do not read'
complete -c heft -n $loaders -l ep-rank -x -d 'place in the expert-parallel group'
complete -c heft -n $loaders -l ep-world -x -d 'its size'
complete -c heft -n $loaders -l experts -x -d 'experts of a layer'
complete -c heft -n $loaders -l preset -x -a 'atlas vllm' -d 'rules for experts'
complete -c heft -n $loaders -l replicated -x -d 'names that every rank keeps'
complete -c heft -n $loaders -l tp-rank -x -d 'place in the tensor-parallel group'
complete -c heft -n $loaders -l tp-world -x -d 'its size'
complete -c heft -n $loaders -l tp-rule -x -d 'cut what matches: GLOB=AXIS'
complete -c heft -n $loaders -l tp-ceil -d 'the last ranks get less'
complete -c heft -n $loaders -l reserve -x -d 'memory to leave free'
complete -c heft -n '__fish_seen_subcommand_from plan load warm bench' -s j -l workers -x -d threads

set -l load '__fish_seen_subcommand_from plan load'
complete -c heft -n $load -l io -x -a 'auto map buffered direct' -d 'path of the bytes'
complete -c heft -n $load -l engine -x -a 'auto pool uring' -d 'who reads'
complete -c heft -n $load -l align -x -d 'alignment of addresses'
complete -c heft -n $load -l limit -x -d 'most memory to use'
complete -c heft -n $load -l multiplier -x -d 'memory of a server by kept bytes'
complete -c heft -n '__fish_seen_subcommand_from load' -l verify -d 'compare with digests'
complete -c heft -n '__fish_seen_subcommand_from load' -l touch -d 'read every byte once'
complete -c heft -n '__fish_seen_subcommand_from load' -l repeat -x -d times
complete -c heft -n '__fish_seen_subcommand_from bench' -l samples -x -d rounds

set -l diff '__fish_seen_subcommand_from diff'
complete -c heft -n $diff -l tolerance -x -d 'close by so much'
complete -c heft -n $diff -l relative -x -d 'or by this part'
complete -c heft -n $diff -l headers -d 'no values'
complete -c heft -n $diff -l all -d 'every difference'

complete -c heft -n '__fish_seen_subcommand_from stats' -l hist -d 'draw the distribution'
complete -c heft -n '__fish_seen_subcommand_from stats' -l fail-on -x -a 'nan inf nan,inf' -d 'exit status 1'

set -l digest '__fish_seen_subcommand_from digest'
complete -c heft -n $digest -l data -d 'one digest of all'
complete -c heft -n $digest -l sha256 -d 'of the files'
complete -c heft -n $digest -l sidecar -d 'beside each file'
complete -c heft -n $digest -l no-sync -d 'do not wait for the disk'
complete -c heft -n $digest -s o -l output -r -d output
complete -c heft -n '__fish_seen_subcommand_from digest verify' -l cache -r -d 'keep SHA-256 there'
complete -c heft -n $digest -s f -l force -d 'replace the output'

set -l verify '__fish_seen_subcommand_from verify'
complete -c heft -n $verify -l include -x -d 'only what matches'
complete -c heft -n $verify -l exclude -x -d 'not what matches'
complete -c heft -n $verify -l all -d 'all that is not good'

set -l copy '__fish_seen_subcommand_from copy align shard merge'
complete -c heft -n '__fish_seen_subcommand_from copy' -l to -x -a 'safetensors sharded npz npy' -d 'form'
complete -c heft -n '__fish_seen_subcommand_from copy align shard' -l shard-size -x -d 'most bytes of a file'
complete -c heft -n '__fish_seen_subcommand_from copy align shard' -l stem -x -d 'names of files begin so'
complete -c heft -n $copy -l include -x -d 'only what matches'
complete -c heft -n $copy -l exclude -x -d 'not what matches'
set -l casting '__fish_seen_subcommand_from plan load copy align shard merge'
complete -c heft -n $casting -l dtype -x -a 'bf16 f16 f32 f64' -d 'convert floats'
complete -c heft -n $casting -l dtype-for -x -d 'convert what matches: GLOB=DTYPE'
complete -c heft -n $casting -l saturate -d 'nearest number instead of infinity'
complete -c heft -n $casting -l allow-inexact -d 'round integers that a float cannot hold'
complete -c heft -n $copy -l transpose -x -d 'swap the last two dims'
complete -c heft -n $copy -l rename -x -d 's/PATTERN/REPLACEMENT/'
complete -c heft -n $copy -l map -r -d 'new names, JSON'
complete -c heft -n $copy -l metadata -x -d 'KEY=VALUE'
complete -c heft -n $copy -l align -x -d 'where tensors start'
complete -c heft -n $copy -l digest -d checksums
complete -c heft -n $copy -l header-room -x -d 'pad the header'
complete -c heft -n $copy -l no-fill -d 'no filler entries'
complete -c heft -n $copy -l unknown-dtypes -d 'copy them as they are'
complete -c heft -n '__fish_seen_subcommand_from copy merge' -l foreign -x -a 'refuse void uint' -d 'dtypes that NumPy lacks'
complete -c heft -n $copy -l no-sync -d 'do not wait for the disk'
complete -c heft -n $copy -l verify -d 'read back'
complete -c heft -n $copy -s n -l dry-run -d 'print the plan only'
complete -c heft -n $copy -s f -l force -d 'replace what is there'
complete -c heft -n $copy -s j -l workers -x -d threads

set -l edit '__fish_seen_subcommand_from edit'
complete -c heft -n $edit -l set -x -d 'write metadata: KEY=VALUE'
complete -c heft -n $edit -l delete -x -d 'take metadata out'
complete -c heft -n $edit -l rename -x -d 'another name: OLD=NEW'
complete -c heft -n $edit -l drop -x -d 'leave out what matches'
complete -c heft -n $edit -l trim -d 'cut off bytes at the end'
complete -c heft -n $edit -l repair -d 'mend what check names'
complete -c heft -n $edit -l rebuild-index -d 'make the index new'
complete -c heft -n $edit -l in-place -d 'write the header where it stands'
complete -c heft -n $edit -l resume -d 'end an interrupted save or edit'
complete -c heft -n $edit -l undo -d 'take an interrupted edit back'
complete -c heft -n $edit -l clean -d 'remove temporary files'
complete -c heft -n $edit -l unknown-dtypes -d 'leave them as they are'
complete -c heft -n $edit -s n -l dry-run -d 'change nothing'
