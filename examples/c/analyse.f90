! The five lines in Fortran: each unit has some columns, and two more on each side. See simulate.f90.
program analyse
  use polyduct
  implicit none
  type(polyduct_port) :: in
  real, pointer :: b(:, :) ! until the next step comes
  call in%open_read('-', '*,block;halo=0,2')
  do while (in%next(b))
    print '(i0,a,i0,a,f0.4)', size(b, 1), ' x ', size(b, 2), ', mean ', sum(dble(b))/size(b)
  end do
  call in%close()
end program
